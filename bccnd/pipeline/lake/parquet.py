"""Tables of Parquet files, written and read by Spark's tasks through pyarrow, on any file system that pyarrow supports.

The files of a day are in ``day=<YYYY-MM-DD>/``; the column ``day`` is in their path only. Paths are those below the
folder or URI of the table, ``where``, which every task opens by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal import files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: the column by which tables are divided, and the prefix of its folders
DAY: Final = "day"
_DAY_FIELD: Final = pa.field("day", pa.string())
#: rows that a task keeps, of all days together, before it writes a row group
_GROUP: Final = 131_072
#: rows read at once
_BATCH: Final = 65_536


class File(NamedTuple):
    """A file of a table: its path below the table's folder, the day of its rows, their number, and its size."""

    path: str
    day: str
    rows: int
    size: int


def day_of(path: str) -> str:
    """The day of a file's folder; empty for a file of a table that is not divided by days."""
    folder, _, _ = path.rpartition("/")
    return folder.rpartition(f"{DAY}=")[2] if folder else ""


def write(frame: DataFrame, where: str, name: str) -> list[File]:
    """Write a frame, whose last column is ``day``, by one file for each of its partitions and days.

    A task that is believed dead may still be writing, so each attempt has names of its own; the files that count are
    those returned.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        days = _Days(where, f"{name}-{context.partitionId():05}-{context.taskAttemptId()}.parquet")
        for batch in batches:
            days.add(batch)
        if finished := days.finish():
            yield pa.RecordBatch.from_pylist([file._asdict() for file in finished])

    written = frame.mapInArrow(task, "path string, day string, rows bigint, size bigint").collect()
    return [File(*row) for row in written]


class _Days:
    """The files of one task."""

    def __init__(self, where: str, name: str) -> None:
        self._filesystem, self._root = files.open_root(where)
        self._local = isinstance(self._filesystem, pafs.LocalFileSystem)
        self._name = name
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._rows: dict[str, int] = {}
        self._files: dict[str, pq.ParquetWriter] = {}
        self._counts: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        days = pc.cast(batch.column(batch.num_columns - 1), pa.string())
        rows = batch.select(batch.schema.names[:-1])
        for day in days.unique().to_pylist():
            part = rows.filter(pc.equal(days, day))
            self._waiting.setdefault(day, []).append(part)
            self._rows[day] = self._rows.get(day, 0) + part.num_rows
        while sum(self._rows.values()) >= _GROUP:
            self._write(max(self._rows, key=self._rows.__getitem__))

    def _path(self, day: str) -> str:
        return f"{DAY}={day}/{self._name}"

    def _write(self, day: str) -> None:
        """Write what waits of a day as a row group."""
        rows = pa.Table.from_batches(self._waiting.pop(day))
        self._counts[day] = self._counts.get(day, 0) + self._rows.pop(day)
        if day not in self._files:
            place = f"{self._root}/{self._path(day)}"
            if self._local:
                self._filesystem.create_dir(place.rpartition("/")[0], recursive=True)
            self._files[day] = pq.ParquetWriter(place, rows.schema, filesystem=self._filesystem, compression="zstd")
        self._files[day].write_table(rows, row_group_size=rows.num_rows)

    def finish(self) -> list[File]:
        """Write the rest; files that are not open yet one after the other."""
        written = []
        for day in sorted({*self._waiting, *self._files}):
            if day in self._waiting:
                self._write(day)
            self._files.pop(day).close()
            size = self._filesystem.get_file_info(f"{self._root}/{self._path(day)}").size
            written.append(File(self._path(day), day, self._counts[day], size))
        return written


def read(spark: SparkSession, where: str, paths: Sequence[str], schema: StructType) -> DataFrame:
    """The rows of these files with the columns of ``schema``, and ``day`` as a string behind them. A column that a file
    does not have is null."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = to_arrow_schema(schema, timezone="UTC")
    # Every kind of session knows this, one of Spark Connect as well.
    tasks = max(1, min(len(paths), int(str(spark.conf.get("spark.sql.shuffle.partitions")))))
    chosen = sorted(paths)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(where, chosen[number::tasks], columns)

    # a task gets one row: its number
    return spark.range(0, tasks, 1, tasks).mapInArrow(task, StructType(list(schema.fields)).add("day", "string"))


def load(where: str, paths: Sequence[str], columns: pa.Schema) -> pa.Table:
    """The same rows, read by this process."""
    return pa.Table.from_batches(list(_batches(where, paths, columns)), columns.append(_DAY_FIELD))


def _batches(where: str, paths: Sequence[str], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    filesystem, root = files.open_root(where)
    for path in paths:
        with pq.ParquetFile(f"{root}/{path}", filesystem=filesystem) as file:
            names = [name for name in columns.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(_BATCH, columns=names, use_threads=False):
                arrays = [
                    batch[field.name].cast(field.type) if field.name in names else pa.nulls(len(batch), field.type)
                    for field in columns
                ]
                arrays.append(pa.repeat(pa.scalar(day_of(path)), len(batch)))
                yield pa.RecordBatch.from_arrays(arrays, schema=columns.append(_DAY_FIELD))
