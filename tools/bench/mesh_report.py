"""The tables and the chart of `tools.bench.mesh`, made of what is in mesh.json and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tools.bench import document
from tools.bench.mesh_topology import ALL

#: what the shapes are called in tables
NAMES: Final = {name: make(30, 1).name for name, make in ALL.items()}

#: segments of the table in docs/mesh.md
SHOWN: Final = (10, 100)

Rows = list[dict[str, Any]]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(document.table(heads, rows, words=1))


def number(value: float) -> str:
    """Three digits that count, and no more."""
    if value >= 100:
        digits = max(0, len(str(int(value))) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def markdown(found: dict[str, Any]) -> str:
    command = ["python -m tools.bench.mesh --docs docs/mesh.md"]
    parts = [f"{document.about(command, found['date'], found['machine'])}."]
    if "costs" in found:
        parts.append(_costs(found["costs"]["seconds"]))
    if "model" in found:
        rows = found["model"]
        parts.append(_in_short(rows))
        parts += [_by_segments(rows, _number_of(name)) for name in ("link_messages", "busiest", "capacity")]
        parts.append(_by_segments(rows, lambda row: f"{row['hops']}: {number(row['seconds'] * 1e3)} ms"))
        parts.append(_two(rows))
    if "losses" in found:
        parts.append(_losses(found["losses"]))
    return "\n\n".join(parts) + "\n"


def _in_short(rows: Rows) -> str:
    """Return the table of docs/mesh.md: two numbers of segments in each cell."""
    chosen = {(row["topology"], row["segments"]): row for row in rows if row["bridges"] == 1}
    values: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
        ("link messages", _number_of("link_messages")),
        ("of the busiest bridge", _number_of("busiest")),
        ("messages a second, single", _number_of("capacity")),
        ("hops", _number_of("hops")),
        ("ms", lambda row: number(row["seconds"] * 1e3)),
    )
    lines = [
        [NAMES[name], *("; ".join(cell(chosen[name, segments]) for segments in SHOWN) for _, cell in values)]
        for name in NAMES
        if all((name, segments) in chosen for segments in SHOWN)
    ]
    return table(["shape", *(head for head, _ in values)], lines)


def _number_of(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: number(row[name])


def _costs(seconds: dict[str, float]) -> str:
    whats = {
        "heard": "a daemon receives a datagram on its segment",
        "passed": "a bridge's daemon hands a message to its gateway",
        "linked": "the gateway sends it over one link",
        "brought": "a link delivers a message, new or not",
        "broadcast": "a bridge broadcasts it, and receives that",
    }
    return table(["what", "us"], [[what, number(seconds[name] * 1e6)] for name, what in whats.items()])


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


#: by shape: colour, line
STYLES: Final = {
    "mesh": ("#d9822b", "-"),
    "ring": ("#7d5fa8", "-"),
    "chain": ("#7d5fa8", ":"),
    "tree": ("#3c8c5a", "--"),
    "hub": ("#1f6fb4", "-"),
    "hubs": ("#1f6fb4", "--"),
    "chance": ("#8b939c", "-"),
}
PANELS: Final = (
    ("busiest", 1.0, "the busiest bridge: link messages\nfor each message"),
    ("capacity", 1.0, "messages a second that it carries,\nall segments together"),
    ("seconds", 1e3, "ms until everybody has it"),
)


def draw(rows: Rows, folder: Path) -> bool:
    """What a message costs by the number of segments, log-log; False without matplotlib."""

    def fill(figure: Any) -> None:
        axes = figure.subplots(1, len(PANELS))
        for axis, (value, factor, title) in zip(axes, PANELS, strict=True):
            for name, (colour, line) in STYLES.items():
                chosen = [row for row in rows if row["topology"] == name and row["bridges"] == 1]
                xs, ys = [row["segments"] for row in chosen], [row[value] * factor for row in chosen]
                axis.loglog(xs, ys, color=colour, linestyle=line, marker=".", label=NAMES[name])
            axis.set_title(title, fontsize=8)
            axis.set_xlabel("segments")
            axis.grid(color=document.FAINT, linewidth=0.6)
        lines = axes[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside lower center", ncols=len(STYLES), frameon=False)

    settings = {"font.size": 8, "axes.edgecolor": document.FAINT, "text.color": document.INK}
    return document.chart(folder / "mesh-segments.svg", (10.5, 3.4), fill, settings)
