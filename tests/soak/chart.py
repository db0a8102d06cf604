"""The chart and the report of a soak, in build/soak: soak.svg, soak.json, soak.txt.

Law: they show what was measured and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.soak.measure import Book, Series

INK, FAINT = "#30343a", "#e3e6ea"
COLOURS: Final = ("#1f6fb4", "#d9822b", "#3c8c5a", "#7d5fa8", "#8b939c", "#b4473c", "#4aa3a3")
#: title, the end of the names of the series that it shows
PANELS: Final = (
    ("resident memory, MB", ": resident"),
    ("its share (PSS), MB", ": its share"),
    ("open descriptors", ": descriptors"),
    ("sources known", ": sources"),
    ("clients at rest", ": clients"),
    ("CPU a message, us", ": CPU a message"),
    ("files in memory that outlive the daemon, MB", "kept"),
    ("longest queues of clients, KB", ": queue"),
    ("messages told to be lost, to slow clients", "told"),
)


def shown(book: Book, ending: str) -> list[Series]:
    return [one for one in book.series.values() if one.name.endswith(ending)]


def chart(book: Book, kills: Sequence[int], folder: Path) -> bool:
    """Draw it; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    settings: dict[Any, Any] = {"svg.hashsalt": "bccnd", "font.size": 8, "axes.edgecolor": FAINT, "text.color": INK}
    with plt.rc_context(settings):
        figure, axes = plt.subplots(3, 3, figsize=(11.5, 8.4), layout="constrained", sharex=True)
        named: dict[str, Any] = {}
        names: dict[str, str] = {}
        for axis, (title, ending) in zip(axes.flat, PANELS, strict=True):
            for one in shown(book, ending):
                name = one.name.partition(":")[0]
                colour = names.setdefault(name, COLOURS[len(names) % len(COLOURS)])
                (line,) = axis.plot(one.rounds, one.values, color=colour, linewidth=0.9)
                if ":" in one.name:
                    named[name] = line
            for number in kills:
                axis.axvline(number, color=FAINT, linewidth=0.5, zorder=0)
            axis.set_title(title, fontsize=8)
            axis.set_ylim(bottom=0)
            axis.grid(axis="y", color=FAINT, linewidth=0.6)
        for axis in axes[-1]:
            axis.set_xlabel("round (grey: relay01 was killed or stopped)")
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named), frameon=False)
        figure.savefig(folder / "soak.svg", metadata={"Date": None})
        plt.close(figure)
    return True


def report(book: Book, figures: Mapping[str, object], faults: Sequence[str]) -> str:
    """The figures, growth by growth, and the verdict."""
    lines = [f"{value!s:>14}  {name}" for name, value in figures.items()]
    lines += ["", f"{'first':>9} {'last':>9} {'growth':>9} {'allowed':>9}  over the last half of the rounds"]
    for one in sorted(book.series.values(), key=lambda one: one.name):
        allowed = one.allowed()
        limit = "" if allowed is None else f"{allowed:.2f}"
        unit = f" ({one.unit})" if one.unit else ""
        lines.append(f"{one.values[0]:9.2f} {one.values[-1]:9.2f} {one.growth():9.2f} {limit:>9}  {one.name}{unit}")
    lines += ["", *(f"FAULT: {fault}" for fault in faults)]
    lines.append("failed" if faults else "passed: nothing lost untold, nothing grows, no bug met")
    return "\n".join(lines) + "\n"


def write(book: Book, figures: Mapping[str, object], faults: Sequence[str], kills: Sequence[int], folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    text = report(book, figures, faults)
    (folder / "soak.txt").write_text(text)
    series = {one.name: {"unit": one.unit, "rounds": one.rounds, "values": one.values} for one in book.series.values()}
    (folder / "soak.json").write_text(json.dumps({"figures": dict(figures), "faults": list(faults), "series": series}))
    chart(book, kills, folder)
    return text
