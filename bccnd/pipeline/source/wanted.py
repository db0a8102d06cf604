"""What Spark asks for (its filters) -> what is read at all: hosts, days, journals, and an expression for the rest.

Law: a filter that is taken is applied to every row here, as SQL has it (null is never equal to anything), and Spark
need not look again; one that is not understood is given back.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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

from bccnd.journal import layout, schema

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


@dataclass
class Wanted:
    """``hosts`` and ``journals`` are the only ones that can matter, where they are known; days are ``YYYY-MM-DD``."""

    hosts: frozenset[str] | None = None
    journals: frozenset[str] | None = None
    first_day: str = ""
    last_day: str = "9999-99-99"
    expression: pc.Expression | None = None

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Keep to these filters from now on; gives back those that are not understood."""
        left = []
        for one in filters:
            found = _expression(one)
            if found is None:
                left.append(one)
                continue
            self.expression = found if self.expression is None else self.expression & found
            self._narrow(one)
        return left

    def _narrow(self, one: Filter) -> None:
        """What the names of folders and files say already."""
        column = getattr(one, "attribute", ("",))[0]
        if column in ("host", "journal_id") and isinstance(one, EqualTo | In):
            values = frozenset([one.value] if isinstance(one, EqualTo) else one.value)
            if column == "host":
                self.hosts = values if self.hosts is None else self.hosts & values
            else:
                self.journals = values if self.journals is None else self.journals & values
        elif column == "ts" and isinstance(
            one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
        ):
            day = _instant(one.value).date().isoformat()
            if not isinstance(one, LessThan | LessThanOrEqual):
                self.first_day = max(self.first_day, day)
            if not isinstance(one, GreaterThan | GreaterThanOrEqual):
                self.last_day = min(self.last_day, day)

    def may_hold(self, file: layout.ObsFile) -> bool:
        """Whether a file can have rows that are wanted."""
        return (
            (self.hosts is None or file.host in self.hosts)
            and (self.journals is None or file.journal_id in self.journals)
            and self.may_be_on(file.day)
        )

    def may_be_on(self, day: str) -> bool:
        return self.first_day <= day <= self.last_day


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
        values = [found for found in (_scalar(value, kind) for value in one.value if value is not None) if found]
        if len(values) < sum(value is not None for value in one.value):
            return None
        # nothing is known of null, neither that it is among them nor that it is not
        return pc.if_else(known.is_valid(), known.isin(pa.array([value.as_py() for value in values], kind)), _UNKNOWN)
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
