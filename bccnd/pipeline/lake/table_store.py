"""The tables of a run: reads what the last build has left, and commits what Spark's tasks write as the next one."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bccnd.errors import PipelineError
from bccnd.pipeline.lake import delta, parquet
from bccnd.pipeline.lake.delta import Change, Lake
from bccnd.pipeline.lake.parquet import File
from bccnd.pipeline.lake.place import usable

#: files of a table and day, at most
FILES: Final = 8
#: seconds: a run that is the first in such a period removes old versions
_CLEANING: Final = 3600.0


class Store:
    """The tables below a folder, open for one run. Use `opened`. Several threads may write tables at the same time."""

    def __init__(self, spark: SparkSession, lake: Lake, run: str, keep: float) -> None:
        self._spark = spark
        self._lake = lake
        self._run = run
        self._keep = keep
        self._changes: dict[str, Change] = {}
        self._replaced: dict[str, Collection[str]] = {}
        self._committing = False
        self._mutex = threading.Lock()
        #: rows that this run has written of each table
        self.rows: dict[str, int] = {}

    def days(self, table: str) -> set[str]:
        """The days of which a table has rows."""
        return {file.day for file in self._lake.files(table)}

    def _paths(self, table: str, days: Collection[str] | None = None) -> list[str]:
        return [file.path for file in self._lake.files(table) if days is None or file.day in days]

    def read(self, table: str, schema: StructType, days: Collection[str] | None = None) -> DataFrame | None:
        """A table as the last run has left it, or these days of it, ``day`` as a string behind its columns; None where
        there is none."""
        paths = self._paths(table, days)
        return parquet.read(self._spark, self._lake.root.at(table), paths, schema) if paths else None

    def nothing(self, schema: StructType) -> DataFrame:
        """A table of no rows, in the shape that `read` gives."""
        return self._spark.createDataFrame([], StructType([*schema, StructField(parquet.DAY, StringType())]))

    def load(self, table: str, columns: pa.Schema, days: Collection[str] | None = None) -> pa.Table:
        """A table as the last run has left it, or these days of it, read by this process."""
        return parquet.load(self._lake.root.at(table), self._paths(table, days), columns)

    def write(self, table: str, frame: DataFrame) -> None:
        """Write partitions of a table, by the last column ``day``, at most `FILES` files of each day; they take their
        place with `commit`."""
        columns = to_arrow_schema(StructType(frame.schema.fields[:-1]), timezone="UTC")
        parts = int(str(self._spark.conf.get("spark.sql.shuffle.partitions")))
        if parts > FILES:
            share = F.pmod(F.xxhash64(*frame.columns), F.lit(FILES))
            frame = frame.repartition(parts, parquet.DAY, share)
        else:
            frame = frame.coalesce(FILES)
        self._note(table, columns, parquet.write(frame, self._lake.root.at(table), f"part-{self._run}"))

    def empty(self, table: str, schema: StructType) -> None:
        """Write nothing of a table: what it has of the days in question goes with `commit`."""
        self._note(table, to_arrow_schema(schema, timezone="UTC"), [])

    def put(self, table: str, rows: pa.Table) -> None:
        """Write a small table that is not divided by days; all of its rows take the place of those before."""
        root, path = self._lake.root, f"{table}/part-{self._run}.parquet"
        with usable(root.where):
            if root.is_local:
                root.filesystem.create_dir(f"{root.path}/{table}")
            pq.write_table(rows, f"{root.path}/{path}", filesystem=root.filesystem, compression="zstd")
            size = root.filesystem.get_file_info(f"{root.path}/{path}").size
        file = File(path.rpartition("/")[2], "", rows.num_rows, size)
        self._changes[table] = Change(rows.schema, [file], [""], divided=False)

    def _note(self, table: str, columns: pa.Schema, written: list[File]) -> None:
        with self._mutex:
            before = self._changes.get(table, Change(columns, [], []))
            self._changes[table] = Change(columns, [*before.written, *written], [])
            self.rows[table] = self.rows.get(table, 0) + sum(file.rows for file in written)

    def written(self, table: str, schema: StructType) -> DataFrame | None:
        """What this run has written of a table; None where that is nothing."""
        change = self._changes.get(table)
        paths = [file.path for file in change.written] if change else []
        return parquet.read(self._spark, self._lake.root.at(table), paths, schema) if paths else None

    def replace(self, table: str, days: Collection[str] | None = None) -> None:
        """Have the next `commit` replace these days of a table, by default all, whatever others it replaces."""
        self._replaced[table] = self.days(table) if days is None else days

    def commit(self, days: Collection[str] | None) -> None:
        """Put all that was written in its place. Of the tables written, a partition of one of ``days`` (None: of any
        day) that was not written is removed: that day has no rows any more. Raises PipelineError: in_use."""
        self._committing = True
        changes = {
            table: change._replace(gone=self._replaced.get(table, self.days(table) if days is None else days))
            if change.divided
            else change
            for table, change in self._changes.items()
        }
        before = self._lake.build.finished / 1e6
        self._lake.commit(changes, self._keep)
        if before // _CLEANING != time.time() // _CLEANING:
            self._lake.remove_old(self._keep)

    def discard(self) -> None:
        """Remove what a run has written that fails before it commits anything."""
        if not self._committing:
            for table, change in self._changes.items():
                for file in change.written:
                    self._lake.root.remove(f"{table}/{file.path}")


@contextmanager
def opened(spark: SparkSession, where: str, *, keep: float = delta.KEEP) -> Iterator[Store]:
    """The tables below ``where``, for one run; what it replaces stays readable for ``keep`` seconds.

    Raises PipelineError: no_place, in_use, old_tables.
    """
    lake = Lake(where)
    lake.begin()
    store = Store(spark, lake, secrets.token_hex(8), keep)
    try:
        yield store
    except BaseException:
        with usable(where):
            store.discard()
        raise


def read_table(spark: SparkSession, where: str, name: str) -> DataFrame:
    """A table as the last build has left it, with ``day`` (a date) behind its columns unless it is not divided by days.

    Raises PipelineError: no_tables, no_place, old_tables.
    """
    lake = Lake(where)
    if name not in lake.tables:
        names = ", ".join(sorted(lake.tables)) or "none"
        detail = f"no table {name!r} in {where}; its tables are: {names}"
        raise PipelineError("no_tables", detail, "make them with: bccn pipeline build JOURNAL --out TABLES")
    columns = from_arrow_schema(lake.columns(name))
    divided = parquet.DAY in columns.names
    schema = StructType([field for field in columns if field.name != parquet.DAY])
    frame = parquet.read(spark, lake.root.at(name), [file.path for file in lake.files(name)], schema)
    return frame.withColumn(parquet.DAY, F.col(parquet.DAY).cast("date")) if divided else frame.drop(parquet.DAY)
