"""Reads tables in Spark: by Spark's own Parquet reader, or, where Spark has no file system for the place, by pyarrow.

Columns and filters of a query prune what Spark's own reader reads. The other way prunes files and rows by filters, and
leaves columns to Spark: data sources that are written in Python are not told which ones a query needs.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as source
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.errors import PipelineError
from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.lake.parquet import DAY, File, day_of
from bccnd.pipeline.lake.place import Root

#: what Spark says where it has no file system for a scheme
_NO_FILE_SYSTEM: Final = re.compile(r"No FileSystem for scheme|ClassNotFoundException|UNSUPPORTED_DATA_SOURCE")
#: characters that Spark takes for a pattern in a path
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
#: bytes of files that a task reads
_PART: Final = 64 << 20
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_COMPARE: Final[dict[type[source.Filter], Callable[[Any, Any], Any]]] = {
    source.EqualTo: operator.eq,
    source.GreaterThan: operator.gt,
    source.GreaterThanOrEqual: operator.ge,
    source.LessThan: operator.lt,
    source.LessThanOrEqual: operator.le,
}


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
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(ArrowTables)
    parts = json.dumps([[file.path for file in part] for part in _parts(files)])
    reader = spark.read.format(ArrowTables.name()).schema(columns)
    return reader.option("tables", where).option("table", name).option("parts", parts).load()


def _as_spark_has_it(root: Root, name: str) -> str | None:
    """The folder of a table as a URI for Spark; None where it would need what only this URI has."""
    if root.is_local:
        return f"file://{root.path}/{name}"
    if "@" in root.where or "?" in root.where:
        return None
    return f"{re.sub('^s3://', 's3a://', root.where).rstrip('/')}/{name}"


def _parts(files: Iterable[File]) -> Iterator[list[File]]:
    part: list[File] = []
    for file in files:
        if part and sum(each.size for each in part) + file.size > _PART:
            yield part
            part = []
        part.append(file)
    if part:
        yield part


class ArrowTables(source.DataSource):
    """Files of a table, read by pyarrow."""

    @classmethod
    def name(cls) -> str:
        return "bccn_tables"

    def reader(self, schema: StructType) -> ArrowReader:
        parts = json.loads(self.options["parts"])
        return ArrowReader(
            self.options["tables"], self.options["table"], parts, to_arrow_schema(schema, timezone="UTC")
        )


class ArrowReader(source.DataSourceReader):
    """Reads some files in each task; Spark applies all filters again."""

    def __init__(self, where: str, table: str, parts: Sequence[Sequence[str]], columns: pa.Schema) -> None:
        self._where, self._table, self._parts, self._columns = where, table, parts, columns
        self._filters: list[source.Filter] = []

    def pushFilters(self, filters: list[source.Filter]) -> Iterable[source.Filter]:  # noqa: N802 - Spark's name
        self._filters = [each for each in filters if type(each) in _COMPARE]
        return filters

    def partitions(self) -> list[source.InputPartition]:
        parts = ([path for path in part if self._has_day(path)] for part in self._parts)
        return [source.InputPartition(part) for part in parts if part]

    def _has_day(self, path: str) -> bool:
        day = pa.scalar(day_of(path), pa.string())
        return all(
            _COMPARE[type(each)](day.as_py(), each.value.isoformat())  # type: ignore[attr-defined]
            for each in self._filters
            if each.attribute == (DAY,)  # type: ignore[attr-defined]
        )

    def _condition(self) -> pc.Expression:
        """What holds for all rows that are wanted."""
        condition = pc.scalar(True)
        for each in self._filters:
            (name, *deeper), value = each.attribute, each.value  # type: ignore[attr-defined]
            if not deeper and name != DAY and type(value) in (str, int):
                condition &= _COMPARE[type(each)](pc.field(name), value)
        return condition

    def read(self, partition: source.InputPartition) -> Iterator[pa.RecordBatch]:
        root, condition = Root(self._where), self._condition()
        for path in partition.value:
            stored = pa.schema([field for field in self._columns if field.name != DAY])
            place = f"{root.path}/{self._table}/{path}"
            rows = ds.dataset(place, schema=stored, filesystem=root.filesystem, format="parquet")
            for batch in rows.to_batches(filter=condition, use_threads=False):
                arrays = batch.columns
                if DAY in self._columns.names:
                    arrays = [*arrays, pa.repeat(pa.scalar(day_of(path)), len(batch)).cast(pa.date32())]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._columns)
