"""Meanings of the journal's verdicts, and the records in which tasks pass on their results.

A task emits records of several kinds in one frame: `RECORD` has room for all of them, `KINDS` lists the columns that a
kind uses, and under which names; `of_kind` takes one kind out again.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from bccnd.journal import file_names

#: microseconds in a minute and in a day
MINUTE: Final = 60_000_000
DAY: Final = file_names.DAY
#: verdicts of datagrams that reached their receiver as messages; the rest was refused
ARRIVED: Final = ("accepted", "reordered", "restart", "duplicate", "stale", "looped", "not_addressed")
#: verdicts of datagrams that were new to their receiver
NEW: Final = ("accepted", "restart", "not_addressed", "looped")
#: verdicts in ARRIVED of rows that are no copies of another row
ONCE: Final = ("accepted", "reordered", "restart", "not_addressed")
#: verdicts of datagrams that were accepted
ACCEPTED: Final = ("accepted", "reordered", "restart")
#: verdicts of rows by which clocks are compared
COMPARED: Final = ("accepted", "reordered", "restart", "not_addressed", "looped")
#: the name of senders that have none
NAMELESS: Final = "?"

_EPOCH: Final = datetime.date(1970, 1, 1)

#: columns that hold the field of the same name, whatever the kind of the record
_SHARED: Final = ("day", "host", "journal_id", "src")
#: columns that hold the other fields of a kind, in their order
_TEXTS: Final = ("text1", "text2", "text3")
_NUMBERS: Final = tuple(f"number{place}" for place in range(1, 13))
#: the columns of a record, for Arrow and for Spark
RECORD: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", *_SHARED, *_TEXTS)),
        *((name, pa.int64()) for name in _NUMBERS),
        ("data", pa.binary()),
    ]
)
RECORD_SHAPE: Final = from_arrow_schema(RECORD)


class RecordKind(NamedTuple):
    """The fields of records of one kind: those of the columns that all kinds share, texts, numbers, and ``data``."""

    shared: tuple[str, ...]
    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    data: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, str]:
        """The column of a record that holds each field."""
        texts = zip(self.texts, _TEXTS, strict=False)
        numbers = zip(self.numbers, _NUMBERS, strict=False)
        return {**{name: name for name in (*self.shared, *self.data)}, **dict(texts), **dict(numbers)}


def _kind(shared: str, *, texts: str = "", numbers: str = "", data: str = "") -> RecordKind:
    return RecordKind(*(tuple(names.split()) for names in (shared, texts, numbers, data)))


_RECORD_KINDS: Final = {
    # of the scan
    "problem": _kind("", texts="path why"),
    "file": _kind("", texts="path", numbers="rows low high"),
    "receiver": _kind("day host journal_id", texts="segment", numbers="from_us to_us new rows"),
    "reach": _kind("day host src", texts="segment"),
    "stretch": _kind(
        "day host journal_id src",
        numbers="from_ts lo_key hi_key epoch port new addressed from_rec to_rec to_ts first_key last_key",
    ),
    # read together with stretches: the fields that both have are in the same columns
    "sent": _kind("day host src", numbers="from_ts lo_key hi_key"),
    "heard": _kind("day host src", numbers="first last once rows"),
    "beats": _kind("day host src", data="data"),
    "refused": _kind("day host src", texts="peer_ip algo verdict", numbers="minute n first last_us"),
    "nameless": _kind("day", texts="chan peer_ip", numbers="minute len peer_port seq_key"),
    "sample": _kind("day host", data="data"),
    "part": _kind("host journal_id", numbers="bucket", data="data"),
    # of the messages
    "message": _kind("day src", texts="chan", numbers="epoch seq_key first set_id listening_set_id copies gap_before"),
    "edge": _kind("day src", texts="chan", numbers="epoch block lo_key hi_key minute listening_set_id"),
    "link": _kind("day host src", numbers="epoch minute any_seen lost_everywhere lost_here not_listening late dup"),
    "channel": _kind("day host", texts="chan", numbers="minute any_seen lost_everywhere lost_here not_listening"),
    "delivered": _kind("day src", numbers="epoch set_id n example_key"),
    "missed": _kind("day host src", numbers="epoch lo_key hi_key at_edge"),
    "epoch": _kind("day src", texts="hosts", numbers="epoch from_ts to_ts lo_key hi_key"),
    "floor": _kind("src", numbers="epoch tail key"),
    "lengths": _kind("day src", texts="chan", numbers="minute len n"),
    "set": _kind("day", texts="hosts", numbers="set_id"),
}
#: kind -> the names of its fields, and the columns of a record that hold them
KINDS: Final[Mapping[str, Mapping[str, str]]] = {kind: fields.columns for kind, fields in _RECORD_KINDS.items()}


def day_of(date: int) -> str:
    """A day, from its number since 1970-01-01."""
    return file_names.day_of(int(date) * DAY)


def date_of(day: str) -> int:
    """The number of a day since 1970-01-01."""
    return (datetime.date.fromisoformat(day) - _EPOCH).days


def beside(day: str) -> tuple[str, str]:
    """The day before and the day after."""
    date = date_of(day)
    return day_of(date - 1), day_of(date + 1)


def make_records(kind: str, **fields: Any) -> pa.RecordBatch:
    """Records of one kind, from a column of values for each of its fields; other fields are ignored."""
    columns = {column: fields[name] for name, column in KINDS[kind].items()}
    count = len(next(iter(columns.values())))
    columns["kind"] = pa.repeat(pa.scalar(kind), count)
    arrays = [
        _array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in RECORD
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD)


def records_of(kind: str, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Records of one kind, from rows; numbers that a row does not have are 0."""
    return make_records(kind, **{name: [row.get(name, 0) for row in rows] for name in KINDS[kind]})


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, kind)


def of_kind(frame: DataFrame, kind: str, days: Sequence[str] | None = None) -> DataFrame:
    """The records of one kind, or those of some days, under the names of their fields."""
    chosen = frame.where(F.col("kind") == kind)
    if days is not None:
        chosen = chosen.where(F.col("day").isin(list(days)))
    return chosen.select(*[F.col(column).alias(name) for name, column in KINDS[kind].items()])


def fields_of(table: pa.Table, kind: str) -> pa.Table:
    """`of_kind` for a table of records that was collected."""
    chosen = table.filter(pc.equal(table["kind"], kind))
    names = KINDS[kind]
    return pa.table([chosen[column] for column in names.values()], names=list(names))


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a frame. Spark 4 stops at the first empty batch of a table, so that there must be one batch."""
    return spark.createDataFrame(table.combine_chunks())
