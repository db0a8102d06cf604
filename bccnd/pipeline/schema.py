"""The columns of every table that the pipeline makes, and of what it keeps for later runs, in one place.

A table has these columns in this order, and ``day`` behind them, by which it is divided into folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa

_TYPES: Final = {
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
    "long": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("us", tz="UTC"),
}


def _columns(text: str) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in text.split(", "))])


#: table -> columns
TABLES: Final[Mapping[str, pa.Schema]] = MappingProxyType(
    {
        name: _columns(columns)
        for name, columns in {
            "receiver_sets": "set_id long, hosts strings",
            "epochs": "src string, epoch long, program string, first_ts time, last_ts time, first_key long, "
            "last_key long, hosts integer, cause string, skipped long",
            "messages": "src string, epoch long, seq_key long, first_ts time, set_id long, listening_set_id long, "
            "copies long, gap_before long, chan string",
            "link_loss": "host string, src string, epoch long, win time, expected long, any_seen long, seen long, "
            "lost_here long, lost_everywhere long, not_listening long, dup long, late long, loss_ratio double",
            "delivery": "src string, epoch long, set_id long, n long, example_key long",
            "channel_loss": "host string, chan string, win time, expected long, seen long, lost_here long, "
            "lost_everywhere long",
            "missed": "src string, epoch long, lo_key long, hi_key long, host string",
            "liveness": "host string, src string, from_ts time, to_ts time, kind string, basis string",
            "channel_traffic": "win time, chan string, src string, msgs long, bytes long, p50_len integer, "
            "p99_len integer, directed boolean",
            "integrity": "win time, host string, peer_ip string, claimed_src string, algo string, verdict string, "
            "n long, first_ts time, last_ts time",
            "skew": "host string, ref_host string, p05_us long, p50_us long, p95_us long, n long",
        }.items()
    }
)

#: the folder of what runs keep for later ones
STATE: Final = "_state"
#: the epochs of sources heard within the carrying time before the end of a day. ``active``: heard on the day itself;
#: ``latest``: the last epoch of its source. ``pace`` numbers were used in ``pace_us`` at its fastest
EPOCHS: Final = f"{STATE}/epochs"
#: from when to when a source was heard on a day, by a host or by any (null), and the silences in between
#: (``kind``: `heard`, `gap`); ``patience_us`` is the longest silence that its rhythm explains, null without a rhythm
HEARD: Final = f"{STATE}/heard"
#: numbers that reports say were sent, as receivers recorded the reports; ``day`` is that of their own clocks
SENT: Final = f"{STATE}/sent"
#: how far the clock of a session is ahead of that of ``ref_host``: percentiles over ``n`` messages (`clocks.Compared`)
CLOCKS: Final = f"{STATE}/clocks"

#: what is kept, divided by days like the tables
STATES: Final[Mapping[str, pa.Schema]] = MappingProxyType(
    {
        EPOCHS: _columns(
            "src string, epoch long, cause string, skipped long, first_us long, last_us long, first_key long, "
            "last_key long, pace long, pace_us long, hosts strings, active boolean, latest boolean"
        ),
        HEARD: _columns(
            "kind string, host string, src string, from_us long, to_us long, patience_us long, basis string"
        ),
        SENT: _columns("src string, first_key long, last_key long, host string, journal_id string, rec long, us long"),
    }
)
COMPARED: Final = _columns(
    "day string, host string, journal_id string, start_us long, ref_host string, p05_us long, p50_us long, "
    "p95_us long, n long"
)
#: all of it: columns without the day, and whether it is divided by days
ALL: Final[Mapping[str, tuple[pa.Schema, bool]]] = MappingProxyType(
    {**{name: (columns, True) for name, columns in {**TABLES, **STATES}.items()}, CLOCKS: (COMPARED, False)}
)


class TableFile(NamedTuple):
    """A file that a task has written: the table, the path below its folder, day, rows, bytes."""

    table: str
    path: str
    day: str
    rows: int
    size: int
