"""Tables as the pipeline writes them, made by hand: small, and with known faults. For tests of the report."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bccnd.pipeline.report.facts import Channel, Clock, Course, Delivery, Epoch, Facts, Link, Refusals, Silence
from bccnd.pipeline.schema import TABLES

#: a Saturday, 10:00 UTC, in microseconds
START: Final = 1_795_255_200_000_000
MINUTE: Final = 60_000_000
DAY: Final = "2026-11-21"
HOUR: Final = 60 * MINUTE
#: a name that would be markup if it were not escaped
EVIL: Final = '<script>alert("1")</script>$x$&amp;'

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def moment(at: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at / 1_000_000, datetime.UTC)


def put(
    root: Path,
    table: str,
    rows: Sequence[Mapping[str, Any]],
    day: str = DAY,
    extra: Sequence[str] = (),
    int96: bool = False,
) -> Path:
    """Rows of a day as a file of a table; times are given in microseconds. ``extra`` are further columns of masks."""
    fields = [pa.field(one.name, _TYPES[one.dataType.simpleString()]) for one in TABLES[table]]
    shape = pa.schema([*fields, *(pa.field(name, pa.int64()) for name in extra)])
    full = [
        {field.name: row.get(field.name, 0 if field.type == pa.int64() else None) for field in shape} for row in rows
    ]
    folder = root / table / f"day={day}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{len(list(folder.iterdir())):05d}.parquet"
    pq.write_table(pa.Table.from_pylist(full, schema=shape), path, use_deprecated_int96_timestamps=int96)
    return path


def write(
    root: Path,
    hosts: Sequence[str],
    senders: Sequence[str],
    *,
    minutes: int = 60,
    each: int = 60,
    missed: Callable[[str, str, int], int] = lambda host, sender, minute: 0,
    unsent: Callable[[str, int], int] = lambda sender, minute: 0,
    absent: Callable[[str, int], bool] = lambda host, minute: False,
    copies: Callable[[str, str], int] = lambda host, sender: 0,
) -> None:
    """A fleet in which every sender says so much each minute. What is missed is said for every receiver, sender and
    minute; hosts hear themselves."""
    put(root, "host_dim", [{"host": host, "bit": bit} for bit, host in enumerate(hosts)])
    losses, sets = [], dict[tuple[str, int], int]()
    for minute in range(minutes):
        for sender in senders:
            gone = unsent(sender, minute)
            seen_by = 0
            for bit, host in enumerate(hosts):
                own = sender.partition("/")[0] == host
                away = absent(host, minute)
                lost = 0 if own or away else missed(host, sender, minute)
                here = 0 if away else each - gone - lost
                seen_by |= bool(here) << bit
                counts = {"expected": each, "any_seen": each - gone, "seen": here, "lost_here": lost}
                counts |= {"lost_everywhere": gone, "not_listening": each - gone if away else 0}
                place = {"host": host, "src": sender, "epoch": 1, "win": START + minute * MINUTE}
                losses.append({**place, **counts, "dup": copies(host, sender) * here})
            sets[sender, seen_by] = sets.get((sender, seen_by), 0) + each - gone
    put(root, "link_loss", losses)
    seen = [{"src": src, "epoch": 1, "seen_by": mask, "n": n, "example_key": 1} for (src, mask), n in sets.items()]
    put(root, "delivery", seen)
    usual = {"msgs": each, "bytes": each * 100, "p50_len": 100, "p99_len": 120, "directed": False}
    wins = (START + minute * MINUTE for minute in range(minutes))
    traffic = [{"win": win, "chan": f"data/{src}", "src": src, **usual} for win in wins for src in senders]
    put(root, "channel_traffic", traffic)
    span = {"first_ts": START, "last_ts": START + minutes * MINUTE, "hosts": len(hosts), "cause": "first"}
    put(root, "epochs", [{"src": sender, "epoch": 1, **span} for sender in senders])
    for table in ("messages", "missed", "liveness", "integrity", "skew"):
        put(root, table, [])


def full(name: str = "h01/app/7", hosts: int = 3) -> Facts:
    """Something of everything."""
    names = tuple(f"h{number:02d}" for number in range(1, hosts + 1))
    return Facts(
        start=START,
        end=START + HOUR,
        step=MINUTE,
        hosts=names,
        senders=1,
        messages=36_000,
        links=tuple(Link(host, name, 36_000, 36_000, 34_000, 2000, 0, 0, 0, 0) for host in names),
        receivers={host: Course((600,) * 60, (33,) * 60, (0,) * 60) for host in names},
        sending={name: Course((1800,) * 60, (99,) * 60, (0,) * 60)},
        epochs=tuple(Epoch(name, number, START + number, START + HOUR, "restart", 3) for number in range(2, 7)),
        silences=(Silence(None, name, START + HOUR // 2, None, "open", "heartbeat"),),
        delivery=(Delivery(frozenset(names), 30_000), Delivery(frozenset(names[:1]), 4000)),
        channels=(Channel(name, 36_000, 3_600_000, 120, False, 600, name, 36_000),),
        refusals=(Refusals(name, "integrity_failed", 40, 3, (name,), 1, START, START + 9),),
        clocks=(Clock("h02", "h01", -5, 2_500_000, 90, 500),),
        all_messages=36_000,
        all_channels=1,
    )
