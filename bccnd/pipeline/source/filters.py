"""What Spark asks for (its filters) -> what is wanted of a journal.

Law: a filter that is taken is applied to every row here, as SQL has it (null is never equal to anything), and Spark
need not look again; one that is not understood is given back.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from bccnd.journal import schema
from bccnd.pipeline.source.wanted import Wanted

_COMPARE: Final[dict[type[Filter], Callable[[Any, Any], Any]]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_TEXT: Final[dict[type[Filter], Callable[..., Any]]] = {
    StringStartsWith: pc.starts_with,
    StringEndsWith: pc.ends_with,
    StringContains: pc.match_substring,
}
#: neither true nor false
_UNKNOWN: Final = pa.scalar(None, pa.bool_())


def take(wanted: Wanted, filters: Iterable[Filter]) -> list[Filter]:
    """Keep to these filters from now on; gives back those that are not understood."""
    left = []
    for one in filters:
        found = _expression(one)
        if found is None:
            left.append(one)
            continue
        wanted.expression = found if wanted.expression is None else wanted.expression & found
        _narrow(wanted, one)
    return left


def _narrow(wanted: Wanted, one: Filter) -> None:
    """What the names of folders and files say already."""
    column = getattr(one, "attribute", ("",))[0]
    if column in ("host", "journal_id") and isinstance(one, EqualTo | In):
        values = frozenset([one.value] if isinstance(one, EqualTo) else one.value)
        if column == "host":
            wanted.hosts = values if wanted.hosts is None else wanted.hosts & values
        else:
            wanted.journals = values if wanted.journals is None else wanted.journals & values
    elif column == "ts" and isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        day = _instant(one.value).date().isoformat()
        if not isinstance(one, LessThan | LessThanOrEqual):
            wanted.first_day = max(wanted.first_day, day)
        if not isinstance(one, GreaterThan | GreaterThanOrEqual):
            wanted.last_day = min(wanted.last_day, day)


def _instant(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC) if value.tzinfo else value.replace(tzinfo=datetime.UTC)


def _expression(one: Filter) -> pc.Expression | None:
    """A filter for rows of `schema.OBS`; None where it is not understood."""
    if isinstance(one, Not):
        inner = _expression(one.child)
        return None if inner is None else ~inner
    column: tuple[str, ...] = getattr(one, "attribute", ())
    if len(column) != 1 or column[0] not in schema.OBS.names:
        return None
    kind = schema.OBS.field(column[0]).type
    known = pc.field(column[0])
    if isinstance(one, IsNull | IsNotNull):
        return known.is_null() if isinstance(one, IsNull) else known.is_valid()
    if isinstance(one, In):
        values = [_scalar(value, kind) for value in one.value if value is not None]
        if any(value is None for value in values):
            return None
        # nothing is known of null, neither that it is among them nor that it is not
        return pc.if_else(
            known.is_valid(),
            known.isin(pa.array([value.as_py() for value in values if value is not None], kind)),
            _UNKNOWN,
        )
    value = _scalar(getattr(one, "value", None), kind)
    if value is None:
        return None
    if type(one) in _TEXT and pa.types.is_string(kind):
        found: pc.Expression = _TEXT[type(one)](known, value.as_py())
        return found
    compare = _COMPARE.get(type(one))
    return None if compare is None else compare(known, value)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """A value as one of a column's type; None where it is none, or stands for nothing."""
    if pa.types.is_timestamp(kind) and isinstance(value, datetime.datetime):
        return pa.scalar(_instant(value), kind)
    if (pa.types.is_string(kind) and isinstance(value, str)) or (
        pa.types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool)
    ):
        try:
            return pa.scalar(value, kind)
        except (pa.ArrowInvalid, OverflowError):
            return None
    return None
