"""The columns of what the pipeline reads and of every table that it makes, in one place.

Law: a table has these columns in this order, and ``day`` behind them, by which it is partitioned; what is written has
been brought into this shape by `conform`. Masks are 63 bits to a column, so that no sign is in the way: ``seen_by`` has
the hosts with bits 0 to 62 of that day's host_dim, ``seen_by_1`` those with bits 63 to 125, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

#: hosts in one column of a mask
WORD: Final = 63

_TYPES: Final[Mapping[str, type[DataType]]] = {
    "bigint": LongType,
    "binary": BinaryType,
    "boolean": BooleanType,
    "double": DoubleType,
    "int": IntegerType,
    "string": StringType,
    "timestamp": TimestampType,
}


def _shape(text: str) -> StructType:
    """Columns as they are written in SQL; Spark's own reader of these needs a running session."""
    fields = [one.split() for one in text.split(",")]
    return StructType([StructField(name, _TYPES[kind]()) for name, kind in fields])


OBS: Final = _shape(
    "host string, journal_id string, rec_no bigint, ts timestamp, segment string, peer_ip string, peer_port int, "
    "verdict string, magic string, algo string, src string, seq_key bigint, epoch int, chan string, form string, "
    "len int, payload binary"
)
SESSIONS: Final = _shape(
    "host string, journal_id string, start_ts timestamp, end_ts timestamp, socket_drops bigint, tap_gaps bigint, "
    "version string"
)

#: table -> columns
TABLES: Final[Mapping[str, StructType]] = {
    name: _shape(columns)
    for name, columns in {
        "host_dim": "host string, bit int",
        "epochs": "src string, epoch int, first_ts timestamp, last_ts timestamp, first_key bigint, last_key bigint, "
        "hosts int, cause string, skipped bigint",
        "messages": "src string, epoch int, seq_key bigint, first_ts timestamp, seen_by bigint, listening bigint, "
        "copies bigint, gap_before bigint, chan string",
        "link_loss": "host string, src string, epoch int, win timestamp, expected bigint, any_seen bigint, "
        "seen bigint, lost_here bigint, lost_everywhere bigint, not_listening bigint, dup bigint, late bigint, "
        "loss_ratio double",
        "delivery": "src string, epoch int, seen_by bigint, n bigint, example_key bigint",
        "missed": "src string, epoch int, lo_key bigint, hi_key bigint, host string",
        "liveness": "host string, src string, from_ts timestamp, to_ts timestamp, kind string, basis string",
        "channel_traffic": "win timestamp, chan string, src string, msgs bigint, bytes bigint, p50_len int, "
        "p99_len int, directed boolean",
        "integrity": "win timestamp, host string, peer_ip string, claimed_src string, algo string, verdict string, "
        "n bigint, first_ts timestamp, last_ts timestamp",
        # its day is one of its columns, and the partition
        "skew": "host string, ref_host string, p05_us bigint, p50_us bigint, p95_us bigint, n bigint",
    }.items()
}
#: columns of masks, each of which goes on in columns with a number behind it where a day has more hosts than WORD
MASKS: Final = {"messages": ("seen_by", "listening"), "delivery": ("seen_by",)}


def columns(table: str, words: int = 1) -> list[str]:
    """The columns of a table without ``day``, where masks have so many words: those beyond the first come last."""
    names = list(TABLES[table].names)
    return names + [f"{mask}_{word}" for word in range(1, words) for mask in MASKS.get(table, ())]


def conform(table: str, frame: DataFrame, words: int = 1) -> DataFrame:
    """A frame brought into the shape of a table, ``day`` (a date) behind its columns."""
    types = {field.name: field.dataType for field in TABLES[table]}
    return frame.select(
        *[
            F.col(name).cast(types.get(name) or types[name.rpartition("_")[0]]).alias(name)
            for name in columns(table, words)
        ],
        F.col("day").cast("date").alias("day"),
    )
