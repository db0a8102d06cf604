"""Tables of Parquet files, written and read by Spark's tasks through pyarrow, on any file system that pyarrow knows.

The files of a day are in ``<folder>/day=<YYYY-MM-DD>/``; the column ``day`` is in their path only. Paths are those
below the folder or URI ``where``, which every task opens by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from bccnd.journal import files, layout

DAY: Final = "day="
_CODEC: Final = "zstd"
#: rows that a task keeps, of all days together, before it writes a row group
_GROUP: Final = 131_072
#: rows read at once
_BATCH: Final = 65_536
#: tasks that read, for each processor
_TASKS: Final = 2


class Written(NamedTuple):
    """A file that a task has written, and how many rows it has."""

    path: str
    day: str
    rows: int


def day_of(path: str) -> str:
    """The day of a file's folder."""
    return path.split("/")[-2].removeprefix(DAY)


def write(frame: DataFrame, where: str, folder: str, name: str = "part") -> list[Written]:
    """Write a frame, whose last column is ``day``, by one file for each of its partitions and days.

    On a local disk a task that is repeated replaces its files. Elsewhere, where a task that is believed dead may still
    be writing, each attempt has names of its own; the ones that count are those returned.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None  # noqa: S101 - this runs in a task
        number, attempt = context.partitionId(), context.taskAttemptId()
        with _Days(where, folder, f"{name}-{number:05}", attempt) as days:
            for batch in batches:
                days.add(batch)
            found = days.finish()
        if found:
            yield pa.RecordBatch.from_pylist([one._asdict() for one in found])

    return [Written(*row) for row in frame.mapInArrow(task, "path string, day string, rows bigint").collect()]


class _Days:
    """The files of one task. On a local disk a file gets its name when it is whole."""

    def __init__(self, where: str, folder: str, name: str, attempt: int) -> None:
        self._filesystem, self._root = files.open_root(where)
        self._local = isinstance(self._filesystem, pafs.LocalFileSystem)
        self._folder = folder
        self._name = f"{name}.parquet" if self._local else f"{name}-{attempt}.parquet"
        self._unfinished = f"{layout.UNFINISHED}{attempt}-{name}.parquet" if self._local else self._name
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._open: dict[str, pq.ParquetWriter] = {}
        self._counts: dict[str, int] = {}

    def __enter__(self) -> _Days:
        return self

    def __exit__(self, *_error: object) -> None:
        for day, writer in self._open.items():
            with suppress(OSError, pa.ArrowException):
                writer.close()
                self._filesystem.delete_file(self._path(day, self._unfinished))

    def add(self, batch: pa.RecordBatch) -> None:
        days = pc.cast(batch.column(batch.num_columns - 1), pa.string())
        rows = batch.select(batch.schema.names[:-1])
        distinct = days.unique().to_pylist()
        for day in distinct:
            part = rows if len(distinct) == 1 else rows.filter(pc.equal(days, day))
            self._waiting.setdefault(day, []).append(part)
            self._rows[day] = self._rows.get(day, 0) + part.num_rows
        while sum(self._rows.values()) >= _GROUP:
            self._write(max(self._rows, key=self._rows.__getitem__))

    def _write(self, day: str) -> None:
        """Write what waits of a day as a row group."""
        rows = pa.Table.from_batches(self._waiting.pop(day))
        self._counts[day] = self._counts.get(day, 0) + self._rows.pop(day)
        if day not in self._open:
            path = self._path(day, self._unfinished)
            if self._local:
                self._filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            self._open[day] = pq.ParquetWriter(path, rows.schema, filesystem=self._filesystem, compression=_CODEC)
        self._open[day].write_table(rows, row_group_size=rows.num_rows)

    def finish(self) -> list[Written]:
        """Write the rest. One file is open at a time, unless a task has had more rows than it keeps."""
        for day in sorted({*self._waiting, *self._open}):
            if day in self._waiting:
                self._write(day)
            self._open[day].close()
            if self._local:
                self._filesystem.move(self._path(day, self._unfinished), self._path(day, self._name))
            del self._open[day]
        return [
            Written(f"{self._folder}/{DAY}{day}/{self._name}", day, rows) for day, rows in sorted(self._counts.items())
        ]

    def _path(self, day: str, name: str) -> str:
        return f"{self._root}/{self._folder}/{DAY}{day}/{name}"


def read(spark: SparkSession, where: str, paths: Sequence[str], schema: StructType) -> DataFrame:
    """The rows of these files with the columns of ``schema``, and ``day`` as a string behind them."""
    whole = StructType(list(schema.fields)).add("day", StringType())
    columns = to_arrow_schema(schema, timezone="UTC")
    tasks = max(1, min(len(paths), _TASKS * spark.sparkContext.defaultParallelism))
    chosen = sorted(paths)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(where, chosen[number::tasks], columns)

    # one row for each task: its number
    return spark.range(0, tasks, 1, tasks).mapInArrow(task, whole)


def load(where: str, paths: Sequence[str], columns: pa.Schema) -> pa.Table:
    """The rows of these files, read here and now; ``day`` is the last column."""
    return pa.Table.from_batches(list(_batches(where, paths, columns)), columns.append(pa.field("day", pa.string())))


def _batches(where: str, paths: Sequence[str], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    filesystem, root = files.open_root(where)
    schema = columns.append(pa.field("day", pa.string()))
    for path in paths:
        with pq.ParquetFile(f"{root}/{path}", filesystem=filesystem) as file:
            there = [name for name in columns.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(_BATCH, columns=there, use_threads=False):
                arrays = [_column(batch, field) for field in columns]
                arrays.append(pa.repeat(pa.scalar(day_of(path)), batch.num_rows))
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    place = batch.schema.get_field_index(field.name)
    return pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place).cast(field.type)
