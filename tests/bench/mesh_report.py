"""The tables of `tests.bench.mesh`, made of what is in mesh.json and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.bench import document
from tests.bench.mesh_topology import ALL

#: what the shapes are called in tables
NAMES: Final = {name: make(30, 1).name for name, make in ALL.items()}

Rows = list[dict[str, Any]]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(document.table(heads, rows, words=1))


def number(value: float) -> str:
    """Three digits that count, and no more."""
    if value >= 100:
        digits = max(0, len(str(int(value))) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def tables(found: dict[str, Any]) -> dict[str, str]:
    """By the name of the place in the page."""
    command = ["python -m tests.bench.mesh --docs docs/mesh.md"]
    made = {"about": f"{document.about(command, found['date'], found['machine'])}."}
    if "costs" in found:
        made["costs"] = _costs(found["costs"]["seconds"])
    if "live" in found:
        made["live"] = _live(found["live"])
    if "model" in found:
        rows = found["model"]
        for name, value in (("messages", "link_messages"), ("busiest", "busiest"), ("capacity", "capacity")):
            made[name] = _by_segments(rows, _number_of(value))
        made["time"] = _by_segments(rows, lambda row: f"{row['hops']}: {number(row['seconds'] * 1e3)} ms")
        made["two"] = _two(rows)
    if "losses" in found:
        made["losses"] = _losses(found["losses"])
    return made


def _number_of(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: number(row[name])


def _costs(seconds: dict[str, float]) -> str:
    whats = {
        "heard": "a daemon hears a datagram on its segment",
        "passed": "a bridge's daemon hands a message to its gateway",
        "linked": "the gateway sends it over one link",
        "brought": "a link brings a message, news or not",
        "broadcast": "a bridge broadcasts it, and hears that",
    }
    return table(["what", "us"], [[what, number(seconds[name] * 1e6)] for name, what in whats.items()])


def _live(rows: Rows) -> str:
    heads = ["shape", "", "least", "most", "expected", "model", "real hosts"]
    lines = []
    for row in rows:
        model = row["model"]
        shape = f"{row['topology']}, {row['segments']} segments, {row['bridges']} bridges each"
        bridges = row["bridges"]
        figures = [1.0, bridges, model["datagrams_expected"], model["datagrams"], row["datagrams"]]
        lines.append([shape, "datagrams on a segment", *map(number, figures)])
        figures = [model[f"link_messages_{one}"] for one in ("least", "most", "expected")]
        figures += [model["link_messages"], row["link_messages"]]
        lines.append([shape, "link messages", *map(number, figures)])
    return table(heads, lines)


def _by_segments(rows: Rows, cell: Callable[[dict[str, Any]], str]) -> str:
    chosen = [row for row in rows if row["bridges"] == 1]
    columns = sorted({row["segments"] for row in chosen})
    cells = {(row["topology"], row["segments"]): cell(row) for row in chosen}
    lines = [[NAMES[name], *(cells.get((name, column), "") for column in columns)] for name in NAMES]
    return table(["shape", *(f"{column:,} segments" for column in columns)], lines)


def _two(rows: Rows) -> str:
    heads = ["shape", "segments", "link messages", "datagrams on a segment", "expected", "copies a bridge gets"]
    lines = []
    for row in rows:
        if row["bridges"] == 2 and row["segments"] in (5, 30, 100, 1000):
            cells = (row["link_messages"], row["datagrams"], row["datagrams_expected"], row["copies"])
            lines.append([NAMES[row["topology"]], f"{row['segments']:,}", *map(number, cells)])
    return table(heads, lines)


def _losses(rows: Rows) -> str:
    heads = ["shape", "bridges", "a host misses", "`late: drop`", "`late: deliver`"]
    lines = [
        [row["topology"], str(row["bridges"]), *(f"{row[one]:.2%}" for one in ("lost", "drop", "deliver"))]
        for row in rows
    ]
    return table(heads, lines)
