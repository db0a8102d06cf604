"""The tables of `tests.bench.mesh`, and the same in a page of docs.

Law: a table is made of what is in mesh.json and of nothing else; and in a page only what stands between a table's two
markers is ever changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tests.bench.mesh_topology import ALL

#: what the shapes are called in tables
NAMES: Final = {name: make(30, 1).name for name, make in ALL.items()}
#: columns that hold words
_WORDS: Final = {"shape", "what"}

Rows = list[dict[str, Any]]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    line = "| " + " | ".join(":--" if head in _WORDS else "--:" for head in heads) + " |"
    return "\n".join(["| " + " | ".join(heads) + " |", line, *("| " + " | ".join(row) + " |" for row in rows)])


def number(value: float) -> str:
    """Three digits that count, and no more."""
    if value >= 100:
        digits = max(0, len(str(int(value))) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def tables(found: dict[str, Any]) -> dict[str, str]:
    """By the name of the place in the page."""
    made = {}
    machine = found["machine"]
    made["about"] = (
        f"`python -m tests.bench.mesh --docs docs/mesh.md`: {found['date']}, {machine['cpu']}, "
        f"{machine['cores']} cores, Linux {machine['kernel']}."
    )
    if "costs" in found:
        made["costs"] = _costs(found["costs"]["seconds"])
    if "live" in found:
        made["live"] = _live(found["live"])
    if "model" in found:
        rows = found["model"]
        made["messages"] = _by_segments(rows, 1, lambda row: number(row["link_messages"]))
        made["busiest"] = _by_segments(rows, 1, lambda row: number(row["busiest"]))
        made["capacity"] = _by_segments(rows, 1, lambda row: number(row["capacity"]))
        made["time"] = _by_segments(rows, 1, lambda row: f"{row['hops']}: {number(row['seconds'] * 1e3)} ms")
        made["two"] = _two(rows)
    if "losses" in found:
        made["losses"] = _losses(found["losses"])
    return made


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


def _by_segments(rows: Rows, bridges: int, cell: Any) -> str:
    chosen = [row for row in rows if row["bridges"] == bridges]
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


def put_into(page: str, made: dict[str, str]) -> tuple[str, list[str]]:
    """A page with our tables between its markers ``<!-- mesh:NAME -->`` and ``<!-- /mesh -->``; and what it lacks."""
    missing = []
    for name, text in made.items():
        pattern = re.compile(rf"(<!-- mesh:{name} -->\n).*?(<!-- /mesh -->)", re.DOTALL)
        page, count = pattern.subn(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)  # type: ignore[misc]
        if not count:
            missing.append(name)
    return page, missing
