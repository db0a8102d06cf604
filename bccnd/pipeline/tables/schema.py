"""The columns of every table that the pipeline makes, and of what it keeps for later runs, in one place.

A table has these columns in this order, and ``day`` behind them, by which it is partitioned; `conform` brings a frame
into this shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructType


def _shape(text: str) -> StructType:
    """Columns from their names and types; Spark's own parser of such text needs a running session."""
    shape = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        shape.add(name, ArrayType(StringType()) if kind == "array<string>" else kind)
    return shape


#: table -> columns
TABLES: Final[Mapping[str, StructType]] = {
    name: _shape(columns)
    for name, columns in {
        "receiver_sets": "set_id long, hosts array<string>",
        "epochs": "src string, epoch long, program string, first_ts timestamp, last_ts timestamp, first_key long, "
        "last_key long, hosts integer, cause string, skipped long",
        "messages": "src string, epoch long, seq_key long, first_ts timestamp, set_id long, "
        "listening_set_id long, copies long, gap_before long, chan string",
        "link_loss": "host string, src string, epoch long, win timestamp, expected long, any_seen long, "
        "seen long, lost_here long, lost_everywhere long, not_listening long, dup long, late long, "
        "loss_ratio double",
        "delivery": "src string, epoch long, set_id long, n long, example_key long",
        "channel_loss": "host string, chan string, win timestamp, expected long, seen long, lost_here long, "
        "lost_everywhere long",
        "missed": "src string, epoch long, lo_key long, hi_key long, host string",
        "liveness": "host string, src string, from_ts timestamp, to_ts timestamp, kind string, basis string",
        "channel_traffic": "win timestamp, chan string, src string, msgs long, bytes long, p50_len integer, "
        "p99_len integer, directed boolean",
        "integrity": "win timestamp, host string, peer_ip string, claimed_src string, algo string, verdict string, "
        "n long, first_ts timestamp, last_ts timestamp",
        "skew": "host string, ref_host string, p05_us long, p50_us long, p95_us long, n long",
    }.items()
}

#: what is kept of the epochs of a day. ``kind``: `run` (an alignment `Run`), `sent` (a `SentRange`: first and last in
#: lo_key and hi_key, ts and moment in from_ts and to_ts), `mark` (`Alignment.marks`, in from_rec),
#: `epoch` (`tables.epochs.of_days`; times and keys in from_ts, to_ts, lo_key, hi_key; in from_rec the highest key of
#: its epoch on all days before), `clock` (the correction of a wrong clock in offset; loose where it is guessed)
ALIGN: Final = _shape(
    "kind string, src string, host string, journal_id string, epoch long, from_rec long, to_rec long, "
    "from_ts long, to_ts long, lo_key long, hi_key long, first_key long, last_key long, loose boolean, "
    "masked boolean, offset long, spread long, hosts array<string>"
)
#: what is kept of the silences of a day (`tables.liveness.Kept`)
HEARD: Final = _shape("what string, host string, src string, from_us long, to_us long, patience long, basis string")
#: what is known of sources from days whose rows are not looked at any more (`source_runs.Carried`), and the hosts
#: that heard the last epoch
CARRIED: Final = _shape(
    "src string, number long, host string, journal_id string, epoch long, to_ts long, hi_key long, pace long, "
    "pace_us long, following long, hosts array<string>"
)
#: the same of silences: rows of `HEARD`, one for each receiver and source, or one of kind `born` or `journal`; the
#: verdict is the kind of the silence behind it
CARRIED_HEARD: Final = _shape(
    "what string, host string, src string, from_us long, to_us long, patience long, basis string, verdict string"
)
#: the sessions of receivers, also those that retention has taken from the journal
SESSIONS: Final = _shape(
    "host string, journal_id string, start_ts timestamp, end_ts timestamp, socket_drops long, tap_gaps long, "
    "version string, cause string"
)


def conform(table: str, frame: DataFrame) -> DataFrame:
    """A frame brought into the shape of a table, ``day`` (a date) behind its columns."""
    return frame.select(
        *[F.col(field.name).cast(field.dataType).alias(field.name) for field in TABLES[table]],
        F.col("day").cast("date").alias("day"),
    )
