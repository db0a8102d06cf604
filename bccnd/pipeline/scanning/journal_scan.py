"""Reads the journal: every task reads some files once and emits the records that the tables follow from.

Invariant: what is emitted of a journal's records, put together, does not depend on how they are cut into files, nor on
which task reads which file. A file that is damaged, or that no recorder can have written, is emitted as a problem. If a
file goes away, the run fails, and the journal is listed anew.
"""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bccnd.errors import PipelineError
from bccnd.journal import files
from bccnd.journal import schema as journal_schema
from bccnd.pipeline.inputs.journal_files import Input, Journal, gone, microseconds, opened, read_ends
from bccnd.pipeline.records import task_records
from bccnd.pipeline.records.row_batch import COLUMNS, NAMES, Batch, Origin
from bccnd.pipeline.records.time_spans import joined
from bccnd.pipeline.scanning import scan_records
from bccnd.pipeline.scanning.sent_ranges import REPORT, find_reports, sent_records

#: rows that a task works on at once, and those of a task if there are so many
ROWS: Final = 500_000
#: rows of messages that are put together at once, about; those of a block, at most; and bits of a block, at most
BUCKET: Final = 300_000
_BLOCK_ROWS: Final = 125_000
_BLOCK: Final = 16
#: times of rows that are wanted, in microseconds; the end does not belong to them
Spans = Sequence[tuple[int, int]]
#: rows whose payloads are read at once
_PAYLOADS: Final = 16_384


@dataclass(frozen=True)
class Plan:
    """What every task needs. ``corrections`` are by (day, host), of wrong clocks; ``spans`` None: all rows;
    ``buckets``: so many groups of messages, in which 2^``block`` numbers of a source stay together; ``parts``: of each
    day one message of so many is emitted to compare clocks by."""

    where: str
    spans: Spans | None
    corrections: Mapping[tuple[str, str], int]
    buckets: int
    block: int
    parts: Mapping[str, int]


def count_rows(journal: Journal, inputs: Sequence[Input]) -> dict[str, int]:
    """How many rows each file has, by path: by its name and that of the next one, or else by its footer. Files are
    sorted by journal; one that cannot be used has none."""
    rows: dict[str, int] = {}
    unknown = []
    for file, following in zip_longest(inputs, inputs[1:]):
        name = file.name
        if following is not None and following.name.journal == name.journal:
            rows[file.path] = following.name.first - name.first
        else:
            unknown.append(file.path)
    for path, ends in journal.ends(unknown).items():
        rows[path] = 0 if isinstance(ends, PipelineError) else ends.rows
    return rows


def block_of(hosts: int) -> int:
    """How many bits the numbers of a block have, so that its rows at so many receivers fit into memory."""
    return min(_BLOCK, max(0, (_BLOCK_ROWS // max(hosts, 1)).bit_length() - 1))


def spans_of(days: Iterable[str], margin: datetime.timedelta) -> Spans:
    """The times of days, and of a margin around them; as few as there can be."""
    margin_us = margin // datetime.timedelta(microseconds=1)
    starts = [task_records.date_of(day) * task_records.DAY for day in days]
    return joined([(start - margin_us, start + task_records.DAY + margin_us) for start in starts])


def scan(spark: SparkSession, inputs: Sequence[Input], plan: Plan, count: int) -> DataFrame:
    """The records of files, from about so many tasks, each of which gets the list of its own files; a frame that reads
    files anew each time, so it is to be kept."""
    tasks = divided(inputs, count)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pickled in batch.column(0).to_pylist():
                # made by the driver of this run
                yield from read(pickle.loads(pickled), plan)  # noqa: S301

    # Spark gives each partition the rows that are its own.
    rows = spark.sparkContext.parallelize([(pickle.dumps(files_of_task),) for files_of_task in tasks], len(tasks))
    return spark.createDataFrame(rows, "files binary", verifySchema=False).mapInArrow(run, task_records.RECORD_SHAPE)


def divided(inputs: Sequence[Input], count: int) -> list[list[Input]]:
    """Files for at most so many tasks, about as many bytes for each, in their order."""
    total = sum(file.size for file in inputs) or 1
    tasks: dict[int, list[Input]] = {}
    before = 0
    for file in inputs:
        tasks.setdefault((before + file.size // 2) * count // total, []).append(file)
        before += file.size
    return list(tasks.values())


def read(inputs: Sequence[Input], plan: Plan) -> Iterator[pa.RecordBatch]:
    """What a task emits of its files."""
    waiting: list[tuple[Origin, pa.Table]] = []
    count = 0
    for file in inputs:
        for piece in _pieces(file, plan):
            if isinstance(piece, pa.RecordBatch):
                yield piece
                continue
            waiting.append((Origin(file.name.host, file.name.journal_id), piece))
            count += piece.num_rows
            if count >= ROWS:
                yield from _emitted(waiting, plan)
                waiting, count = [], 0
    if waiting:
        yield from _emitted(waiting, plan)


def _emitted(tables: Sequence[tuple[Origin, pa.Table]], plan: Plan) -> Iterator[pa.RecordBatch]:
    origins = {origin: index for index, origin in enumerate(dict.fromkeys(origin for origin, _ in tables))}
    rows = np.repeat([origins[origin] for origin, _ in tables], [table.num_rows for _, table in tables])
    batch = Batch(list(origins), rows, pa.concat_tables([table for _, table in tables]))
    yield from scan_records.records(batch, plan.buckets, plan.block, plan.parts)


def _pieces(source: Input, plan: Plan) -> Iterator[pa.Table | pa.RecordBatch]:
    """The rows of a file that are wanted, at most about ROWS at once, and records about the file itself."""
    filesystem, root = files.open_root(plan.where)
    name, path, _ = source
    correction = plan.corrections.get((name.day, name.host), 0)
    try:
        with opened(filesystem, root, plan.where, path, journal_schema.OBS, read_dictionary=list(NAMES)) as file:
            about = {"path": path, **read_ends(file)._asdict()}
            yield task_records.make_records("file", **{field: [value] for field, value in about.items()})
            for groups in _groups(file, plan.spans, correction):
                table = file.read_row_groups(groups, columns=list(COLUMNS))
                reports = find_reports(table)
                if len(reports) and journal_schema.PAYLOAD in file.schema_arrow.names:
                    payloads = _payloads(file, groups, reports.to_numpy())
                    rows = table.take(reports).append_column(journal_schema.PAYLOAD, payloads)
                    yield sent_records(name.host, _in_time(rows, plan.spans, correction).select(list(REPORT)))
                chosen = _in_order(_in_time(table, plan.spans, correction))
                if chosen.num_rows:
                    yield chosen
    except FileNotFoundError as error:
        # Also where a task is run again because its results were lost: without these rows they would be others.
        raise gone(f"{plan.where}/{path}") from error
    except PipelineError as error:
        yield task_records.make_records("problem", path=[path], why=[error.detail])


def _groups(file: pq.ParquetFile, spans: Spans | None, correction: int) -> Iterator[list[int]]:
    """Row groups to be read together, without those that have no row in ``spans`` when their times are corrected."""
    groups: list[int] = []
    count = 0
    column = file.schema_arrow.get_field_index("ts")
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        times = group.column(column).statistics
        if spans is not None and times is not None and times.has_min_max:
            low, high = microseconds(times.min) - correction, microseconds(times.max) - correction
            if not any(begin <= high and low < end for begin, end in spans):
                continue
        groups.append(number)
        count += group.num_rows
        if count >= ROWS:
            yield groups
            groups, count = [], 0
    if groups:
        yield groups


def _payloads(file: pq.ParquetFile, groups: list[int], rows: np.ndarray[Any, np.dtype[Any]]) -> pa.ChunkedArray:
    """The payloads of some rows of row groups, which would fill the memory if all were kept."""
    payloads = []
    low = 0
    for batch in file.iter_batches(_PAYLOADS, row_groups=groups, columns=[journal_schema.PAYLOAD]):
        first, last = np.searchsorted(rows, (low, low + batch.num_rows))
        payloads.append(batch.column(0).take(pa.array(rows[first:last] - low)))
        low += batch.num_rows
    return pa.chunked_array(payloads)


def _in_time(table: pa.Table, spans: Spans | None, correction: int) -> pa.Table:
    """Rows with the times that they have by a right clock; those in spans."""
    times = table["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() - correction
    table = table.set_column(table.schema.get_field_index("ts"), "ts", pa.array(times))
    if spans is not None:
        inside = np.zeros(len(times), bool)
        for begin, end in spans:
            inside |= (times >= begin) & (times < end)
        if not inside.all():
            table = table.filter(pa.array(inside))
    return table


def _in_order(table: pa.Table) -> pa.Table:
    """Rows in the order of their numbers, with the columns of a batch."""
    numbers = table["rec_no"].to_numpy()
    if np.any(numbers[1:] < numbers[:-1]):
        table = table.sort_by("rec_no")
    columns = [_named(table[name]) if name in NAMES else table[name] for name in COLUMNS]
    return pa.table(columns, names=list(COLUMNS))


def _named(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of names as every file has it."""
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    return column.cast(pa.dictionary(pa.int32(), pa.string()))
