"""Tables as the pipeline writes them, made by hand: small, and with known faults. For tests of the report."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bccnd.pipeline.driver.recorded_inputs import KEPT
from bccnd.pipeline.lake.delta import BUILDS, DAMAGED, FORMAT, MISSING, SESSIONS
from bccnd.pipeline.report.facts import (
    Channel,
    Clock,
    Course,
    Delivery,
    Facts,
    Link,
    Recording,
    Refusals,
    Silence,
    Start,
)
from bccnd.pipeline.schema import TABLES

#: a Saturday, 10:00 UTC, in microseconds
START: Final = 1_795_255_200_000_000
MINUTE: Final = 60_000_000
DAY: Final = "2026-11-21"
HOUR: Final = 60 * MINUTE
#: messages of each sender in a minute
RATE: Final = 60
#: a name that would be markup if it were not escaped
EVIL: Final = '<script>alert("1")</script>$x$&amp;'
#: tables that the report reads; the pipeline makes more of them
COLUMNS: Final[Mapping[str, pa.Schema]] = {
    **{name: columns for name, columns in TABLES.items() if name not in ("messages", "missed")},
    **{name: KEPT[name][0] for name in (SESSIONS, MISSING, DAMAGED)},
}


def spaced(text: str) -> str:
    """A text of the page with plain spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def put(root: Path, table: str, rows: Sequence[Mapping[str, Any]], day: str = DAY) -> Path:
    """Rows of a day as another file of a table, and a build that has it; times are given in microseconds. Returns the
    path of the file."""
    divided = not table.startswith("_")
    columns = pa.schema([field.with_nullable(True) for field in COLUMNS[table]])
    full = [
        {field.name: row.get(field.name, 0 if field.type == pa.int64() else None) for field in columns} for row in rows
    ]
    content = pa.Table.from_pylist(full, schema=columns)
    if divided:
        content = content.append_column("day", pa.repeat(pa.scalar(datetime.date.fromisoformat(day)), len(content)))
    write_deltalake(root / table, content, mode="append", partition_by=["day"] if divided else None)
    put_build(root)
    return max((root / table).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns, default=root / table)


def put_build(root: Path) -> None:
    """A build that names the newest version of every table."""
    logs = (path.parent for path in root.rglob("_delta_log"))
    tables = {str(path.relative_to(root)): DeltaTable(path).version() for path in logs if path.name != BUILDS}
    kinds = pa.string(), pa.timestamp("us", tz="UTC"), pa.map_(pa.string(), pa.int64())
    names = "build_id", "finished_ts", "versions"
    columns = [pa.array([value], kind) for value, kind in zip(("x", 1, list(tables.items())), kinds, strict=True)]
    write_deltalake(root / BUILDS, pa.table(columns, names), mode="overwrite", description=f"builds {FORMAT}")


def write(
    root: Path,
    hosts: Sequence[str],
    senders: Sequence[str],
    *,
    minutes: int = 60,
    missed: Callable[[str, str, int], int] = lambda host, sender, minute: 0,
    unsent: Callable[[str, int], int] = lambda sender, minute: 0,
) -> None:
    """Write the tables of a fleet in which every sender sends `RATE` messages a minute. ``missed`` counts those that a
    receiver lost of a sender in a minute, ``unsent`` those that all lost; hosts receive their own."""
    losses, sets = [], dict[frozenset[str], int]()
    for minute in range(minutes):
        for sender in senders:
            gone = unsent(sender, minute)
            received = set()
            for host in hosts:
                lost = 0 if sender.partition("/")[0] == host else missed(host, sender, minute)
                here = RATE - gone - lost
                received |= {host} if here else set()
                counts = {"any_seen": RATE - gone, "seen": here, "lost_here": lost, "lost_everywhere": gone}
                place = {"host": host, "src": sender, "epoch": 1, "win": START + minute * MINUTE}
                losses.append({**place, "expected": RATE, **counts})
            sets[frozenset(received)] = sets.get(frozenset(received), 0) + RATE - gone
    put(root, "link_loss", losses)
    put(root, "receiver_sets", [{"set_id": number, "hosts": sorted(received)} for number, received in enumerate(sets)])
    put(root, "delivery", [{"src": senders[0], "set_id": number, "n": n} for number, n in enumerate(sets.values())])
    for table in ("liveness", "integrity", "skew", "channel_loss"):
        put(root, table, [])
    usual = {"msgs": RATE, "bytes": RATE * 100, "p50_len": 100, "p99_len": 120, "directed": False}
    wins = (START + minute * MINUTE for minute in range(minutes))
    traffic = [{"win": win, "chan": f"data/{src}", "src": src, **usual} for win in wins for src in senders]
    put(root, "channel_traffic", traffic)
    span = {"first_ts": START, "last_ts": START + minutes * MINUTE, "hosts": len(hosts), "cause": "first"}
    put(
        root,
        "epochs",
        [
            {"src": src, "program": src.rpartition("/")[0] if src.count("/") > 1 else src, "epoch": 1, **span}
            for src in senders
        ],
    )


def full(name: str = "h01/app", hosts: int = 3) -> Facts:
    """Something of everything."""
    names = tuple(f"h{number:02d}" for number in range(1, hosts + 1))
    courses = {host: Course((600,) * 60, (33,) * 60, (0,) * 60) for host in names}
    return Facts(
        start=START,
        end=START + HOUR,
        step=MINUTE,
        hosts=names,
        links=tuple(Link(host, name, 36_000, 36_000, 34_000, 2000, 0, 0, 0, 0) for host in names),
        receivers=courses,
        sending={name: Course((1800,) * 60, (99,) * 60, (0,) * 60)},
        starts=tuple(Start(name, START + number * MINUTE, "restart", 5 * number) for number in range(5)),
        silences=(Silence(name, START + HOUR // 2, None, "open", "heartbeat"),),
        delivery=(Delivery(frozenset(names), 30_000), Delivery(frozenset(names[:1]), 4000)),
        channels=(Channel(name, 36_000, 3_600_000, 120, 600, name, 36_000, 900, 50),),
        refusals=(Refusals(name, "integrity_failed", 40, 3, [name], 1, START, START + 9),),
        clocks=(Clock("h02", "h01", -5, 2_500_000, 90, 500),),
        recordings=tuple(Recording(host, START, START + HOUR, name, 3, 0) for host in names),
        before=courses,
        messages=36_000,
    )
