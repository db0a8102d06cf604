"""Reads tables in Spark: by Spark's own Parquet reader, or, where Spark has no file system for the place, by pyarrow.

Columns and filters of a query prune what Spark's own reader reads. The other way reads whole tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bccnd.errors import PipelineError
from bccnd.pipeline.lake import parquet
from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.lake.place import Root

#: what Spark says where it has no file system for a scheme
_NO_FILE_SYSTEM: Final = re.compile(r"No FileSystem for scheme|ClassNotFoundException|UNSUPPORTED_DATA_SOURCE")
#: characters that Spark takes for a pattern in a path
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")


def read_table(spark: SparkSession, where: str, name: str) -> DataFrame:
    """A table as the last build has left it, with ``day`` (a date) behind its columns if it is divided by days.

    Raises PipelineError: no_tables, no_place, old_tables.
    """
    lake = Lake(where)
    if name not in lake.tables:
        names = ", ".join(sorted(table for table in lake.tables if not table.startswith("_"))) or "none"
        detail = f"no table {name!r} in {where}; its tables are: {names}"
        raise PipelineError("no_tables", detail, "make them with: bccn pipeline build JOURNAL --out TABLES")
    columns, files = from_arrow_schema(lake.columns(name)), lake.files(name)
    if not files:
        return spark.createDataFrame([], columns)
    folder = _as_spark_has_it(lake.root, name)
    if folder is not None:
        paths = [_PATTERN.sub(r"\\\1", f"{folder}/{file.path}") for file in files]
        try:
            return spark.read.schema(columns).option("basePath", folder).parquet(*paths)
        except (Py4JJavaError, PySparkException) as error:
            if not _NO_FILE_SYSTEM.search(str(error)):
                raise
    rows = spark.createDataFrame([(file.path,) for file in files], "path string")
    return rows.repartition(len(files), "path").mapInArrow(_Reader(where, name, lake.columns(name)), columns)


def _as_spark_has_it(root: Root, name: str) -> str | None:
    """The folder of a table as a URI for Spark; None where it would need what only this URI has."""
    if root.is_local:
        return f"file://{root.path}/{name}"
    if "@" in root.where or "?" in root.where:
        return None
    return f"{re.sub('^s3://', 's3a://', root.where).rstrip('/')}/{name}"


class _Reader:
    """Reads the files whose paths come, in a task of Spark."""

    def __init__(self, where: str, table: str, columns: pa.Schema) -> None:
        self._where, self._table, self._columns = where, table, columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        root = Root(self._where)
        for batch in batches:
            for path in batch["path"].to_pylist():
                yield from parquet.load(root, self._table, [path], self._columns).to_batches()
