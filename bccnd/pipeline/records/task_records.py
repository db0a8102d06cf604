"""Meanings of the journal's verdicts, and the records in which tasks pass on their results.

A task emits records of several kinds in one frame: `RECORD` has room for all of them, `KINDS` lists the columns that a
kind uses, and under which names; `of_kind` takes one kind out again.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from bccnd.journal import file_names

#: microseconds in a minute and in a day
MINUTE: Final = 60_000_000
DAY: Final = 86_400_000_000
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

_TEXTS: Final = ("kind", "day", "host", "journal_id", "src", "text", "more", "last")
_NUMBERS: Final = tuple("abcdefghijkl")
#: the columns of a record, for Arrow and for Spark
RECORD: Final = pa.schema(
    [*((name, pa.string()) for name in _TEXTS), *((name, pa.int64()) for name in _NUMBERS), ("data", pa.binary())]
)
RECORD_SHAPE: Final = from_arrow_schema(RECORD)

#: kind -> the names of its fields, and the columns of a record that hold them
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    kind: {name: column or name for name, _, column in (pair.partition("=") for pair in fields.split())}
    for kind, fields in {
        # of the scan
        "problem": "path=text why=more",
        "file": "path=text host journal_id first=a rows=b low=c high=d",
        "receiver": "day host journal_id segment=text from_us=a to_us=b new=c rows=d",
        "reach": "day src host segment=text",
        "stretch": "day host journal_id src epoch=a port=b new=c addressed=d from_rec=e to_rec=f from_ts=g to_ts=h "
        "lo_key=i hi_key=j first_key=k last_key=l",
        "sent": "day host src from_ts=g lo_key=i hi_key=j",
        "heard": "day host src first=a last=b once=c rows=d",
        "beats": "day host src data",
        "refused": "day host peer_ip=text claimed_src=src algo=more verdict=last minute=a n=b first=c last_us=d",
        "nameless": "day chan=text peer_ip=more minute=a len=b peer_port=c seq_key=d",
        "sample": "day host data",
        "part": "bucket=a host journal_id data",
        # of the messages
        "message": "day src chan=text epoch=a seq_key=b first=c set_id=d listening_set_id=e copies=f gap_before=g",
        "edge": "day src chan=text epoch=a block=b lo_key=c hi_key=d minute=e listening_set_id=f",
        "link": "day host src epoch=a minute=b any_seen=c lost_everywhere=d lost_here=e not_listening=f late=g dup=h",
        "channel": "day host chan=text minute=b any_seen=c lost_everywhere=d lost_here=e not_listening=f",
        "delivered": "day src epoch=a set_id=b n=c example_key=d",
        "missed": "day src host epoch=a lo_key=b hi_key=c at_edge=d",
        "epoch": "day src hosts=text epoch=a from_ts=b to_ts=c lo_key=d hi_key=e",
        "floor": "src epoch=a tail=b key=c",
        "lengths": "day src chan=text minute=a len=b n=c",
        "set": "day hosts=text set_id=a",
    }.items()
}


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
