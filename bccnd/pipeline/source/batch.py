"""Reads a journal or captures as a table: `spark.read.format("bccn")`.

A file of a journal is a partition. All captures of one host are one, as a verdict depends on earlier datagrams.

Invariant: a filter that is taken from Spark is applied to every row as SQL would; one that is not understood is left to
Spark.
"""

from __future__ import annotations

import contextlib
import datetime
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.journal import file_names, reader, schema
from bccnd.journal.capture_file import is_stream
from bccnd.journal.capture_import import CaptureSet, CaptureSettings
from bccnd.pipeline.source import journal_reader
from bccnd.pipeline.source.journal_reader import Wanted
from bccnd.pipeline.source.options import bad_option

#: filter -> the expression for a column and a value
_COMPARE: Final[dict[type[spark.Filter], Callable[[pc.Expression, pa.Scalar], pc.Expression]]] = {
    spark.EqualTo: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.StringStartsWith: lambda column, value: pc.starts_with(column, value.as_py()),
    spark.StringEndsWith: lambda column, value: pc.ends_with(column, value.as_py()),
    spark.StringContains: lambda column, value: pc.match_substring(column, value.as_py()),
}
_FROM: Final = (spark.GreaterThan, spark.GreaterThanOrEqual)
_UP_TO: Final = (spark.LessThan, spark.LessThanOrEqual)
_PYTHON: Final = {pa.string(): str, pa.int32(): int, pa.int64(): int, pa.timestamp("us", "UTC"): datetime.datetime}


@dataclass
class Partition(spark.InputPartition):
    """A file of a journal, with its records before ``end``; or captures of one host."""

    file: file_names.ObsFile | None
    end: int | None = None
    captures: tuple[str, ...] = ()


class _PushFilters:
    """Accepts filters from Spark. Appears to be the method of the base class, since Spark refuses a reader that
    overrides it while ``spark.sql.python.filterPushdown.enabled`` is off (the default)."""

    __func__ = staticmethod(spark.DataSourceReader.pushFilters)

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def __call__(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        return take(self._wanted, filters)


class BatchReader(spark.DataSourceReader):
    """Reads a journal or captures at ``path``; ``captures`` sets how captures are checked."""

    def __init__(self, path: str, columns: StructType, captures: CaptureSettings | None) -> None:
        self._path = path
        self._schema = to_arrow_schema(columns, timezone="UTC")
        self._captures = captures
        self._wanted = Wanted()
        self.pushFilters: Any = _PushFilters(self._wanted)

    def partitions(self) -> list[spark.InputPartition]:
        """Raises PipelineError: no_journal, bad_option."""
        if is_stream(self._path):
            raise bad_option(f"{self._path} is a stream, which Spark cannot read again", "name a file or a folder")
        paths = reader.find_captures(self._path)
        if paths and self._captures is None:
            raise bad_option(f"{self._path} has captures, but the option host is missing", "name their host")
        if paths:
            return [Partition(None, captures=tuple(paths))]
        listed = journal_reader.find(reader.open_place(self._path), self._wanted)
        return [Partition(file.name, file.end) for file in listed]

    def read(self, partition: spark.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)  # noqa: S101 - as planned above
        place, file, wanted = reader.open_place(self._path), partition.file, self._wanted.expression
        if file is not None:
            for batch in journal_reader.rows(place, file, file.first, partition.end, self._schema.names, wanted):
                yield batch.cast(self._schema)
        elif self._captures is not None:
            for table in CaptureSet(partition.captures, self._captures).tables():
                yield from table.filter(wanted).select(self._schema.names).cast(self._schema).to_batches()


def take(wanted: Wanted, filters: Iterable[spark.Filter]) -> list[spark.Filter]:
    """Narrow the selection by these filters; return those that are not understood."""
    left = []
    for condition in filters:
        expression = _expression(condition)
        if expression is None:
            left.append(condition)
        else:
            wanted.expression &= expression
            _narrow(wanted, condition)
    return left


def _narrow(wanted: Wanted, condition: spark.Filter) -> None:
    """Narrow the selection of files, by what their names hold."""
    column = getattr(condition, "attribute", ("",))[0]
    if column in ("host", "journal_id") and isinstance(condition, spark.EqualTo | spark.In):
        values = frozenset([condition.value] if isinstance(condition, spark.EqualTo) else condition.value)
        name = "hosts" if column == "host" else "journals"
        before = getattr(wanted, name)
        setattr(wanted, name, values if before is None else before & values)
    elif column == "ts" and isinstance(condition, (spark.EqualTo, *_FROM, *_UP_TO)):
        day = _utc(condition.value).date().isoformat()
        if not isinstance(condition, _UP_TO):
            wanted.first_day = max(wanted.first_day, day)
        if not isinstance(condition, _FROM):
            wanted.last_day = min(wanted.last_day, day)


def _utc(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC) if value.tzinfo else value.replace(tzinfo=datetime.UTC)


def _expression(condition: spark.Filter) -> pc.Expression | None:
    """Return the expression of a filter for rows of `schema.OBS`; None if it is not understood."""
    if isinstance(condition, spark.Not):
        inner = _expression(condition.child)
        return None if inner is None else ~inner
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1 or path[0] not in schema.OBS.names:
        return None
    kind, column = schema.OBS.field(path[0]).type, pc.field(path[0])
    if isinstance(condition, spark.IsNull | spark.IsNotNull):
        return column.is_null() if isinstance(condition, spark.IsNull) else column.is_valid()
    if isinstance(condition, spark.In):
        values = [_scalar(value, kind) for value in condition.value if value is not None]
        if None in values:
            return None
        unknown = pa.scalar(None, pa.bool_())  # whether null is among them
        return pc.if_else(column.is_valid(), column.isin(pa.array(values, kind)), unknown)
    value, compare = _scalar(getattr(condition, "value", None), kind), _COMPARE.get(type(condition))
    return None if value is None or compare is None else compare(column, value)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Convert a value to a column's type; None if it is none of that type."""
    if type(value) is not _PYTHON.get(kind):
        return None
    with contextlib.suppress(pa.ArrowInvalid, OverflowError):
        return pa.scalar(_utc(value) if isinstance(value, datetime.datetime) else value, kind)
    return None
