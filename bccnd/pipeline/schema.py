"""The columns of every table that the pipeline makes, and of what it keeps for later runs, in one place.

A table has these columns in this order, and ``day`` behind them, by which it is partitioned; `conform` brings a frame
into this shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
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

_TYPES: Final[Mapping[str, DataType]] = {
    "array<string>": ArrayType(StringType()),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "double": DoubleType(),
    "int": IntegerType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}


def _shape(text: str) -> StructType:
    """Columns as they are written in SQL; Spark's own reader of these needs a running session."""
    fields = [one.split() for one in text.split(",")]
    return StructType([StructField(name, _TYPES[kind]) for name, kind in fields])


#: table -> columns
TABLES: Final[Mapping[str, StructType]] = {
    name: _shape(columns)
    for name, columns in {
        "receiver_sets": "set_id bigint, hosts array<string>",
        "epochs": "src string, epoch bigint, program string, first_ts timestamp, last_ts timestamp, first_key bigint, "
        "last_key bigint, hosts int, cause string, skipped bigint",
        "messages": "src string, epoch bigint, seq_key bigint, first_ts timestamp, set_id bigint, "
        "listening_set_id bigint, copies bigint, gap_before bigint, chan string",
        "link_loss": "host string, src string, epoch bigint, win timestamp, expected bigint, any_seen bigint, "
        "seen bigint, lost_here bigint, lost_everywhere bigint, not_listening bigint, dup bigint, late bigint, "
        "loss_ratio double",
        "delivery": "src string, epoch bigint, set_id bigint, n bigint, example_key bigint",
        "channel_loss": "host string, chan string, win timestamp, expected bigint, seen bigint, lost_here bigint, "
        "lost_everywhere bigint",
        "missed": "src string, epoch bigint, lo_key bigint, hi_key bigint, host string",
        "liveness": "host string, src string, from_ts timestamp, to_ts timestamp, kind string, basis string",
        "channel_traffic": "win timestamp, chan string, src string, msgs bigint, bytes bigint, p50_len int, "
        "p99_len int, directed boolean",
        "integrity": "win timestamp, host string, peer_ip string, claimed_src string, algo string, verdict string, "
        "n bigint, first_ts timestamp, last_ts timestamp",
        "skew": "host string, ref_host string, p05_us bigint, p50_us bigint, p95_us bigint, n bigint",
    }.items()
}

#: what is kept of the epochs of a day. ``kind``: `run` (an `epoch_alignment.Run`), `mark` (`epoch_alignment.Alignment.marks`, in from_rec),
#: `epoch` (`tables.epochs.of_days`; times and keys in from_ts, to_ts, lo_key, hi_key; in from_rec the highest key of
#: its epoch on all days before), `clock` (the correction of a wrong clock in offset; loose where it is guessed)
ALIGN: Final = _shape(
    "kind string, src string, host string, journal_id string, epoch bigint, from_rec bigint, to_rec bigint, "
    "from_ts bigint, to_ts bigint, lo_key bigint, hi_key bigint, first_key bigint, last_key bigint, loose boolean, "
    "masked boolean, offset bigint, spread bigint, hosts array<string>"
)
#: what is kept of the silences of a day (`tables.liveness.Kept`)
HEARD: Final = _shape(
    "what string, host string, src string, from_us bigint, to_us bigint, patience bigint, basis string"
)
#: the sessions of receivers, also those that retention has taken from the journal
SESSIONS: Final = _shape(
    "host string, journal_id string, start_ts timestamp, end_ts timestamp, socket_drops bigint, tap_gaps bigint, "
    "version string"
)


def conform(table: str, frame: DataFrame) -> DataFrame:
    """A frame brought into the shape of a table, ``day`` (a date) behind its columns."""
    return frame.select(
        *[F.col(field.name).cast(field.dataType).alias(field.name) for field in TABLES[table]],
        F.col("day").cast("date").alias("day"),
    )
