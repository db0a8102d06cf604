"""The chart of `tests.bench.mesh`: what a message costs by the number of segments, log-log, as svg.

It shows what is in mesh.json and nothing else, and drawn twice from the same figures it is the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.bench.document import FAINT, INK, chart
from tests.bench.mesh_report import NAMES

FILE: Final = "mesh-segments.svg"
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


def write(rows: list[dict[str, Any]], folder: Path) -> bool:
    """Draw it; False without matplotlib."""

    def fill(figure: Any) -> None:
        axes = figure.subplots(1, len(PANELS))
        for axis, (value, factor, title) in zip(axes, PANELS, strict=True):
            for name, (colour, line) in STYLES.items():
                chosen = [row for row in rows if row["topology"] == name and row["bridges"] == 1]
                xs, ys = [row["segments"] for row in chosen], [row[value] * factor for row in chosen]
                axis.plot(xs, ys, color=colour, linestyle=line, marker=".", label=NAMES[name])
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_title(title, fontsize=8)
            axis.set_xlabel("segments")
            axis.grid(color=FAINT, linewidth=0.6)
        lines = axes[0].get_legend_handles_labels()
        figure.legend(*lines, loc="outside lower center", ncols=len(STYLES), frameon=False)

    settings = {"font.size": 8, "axes.edgecolor": FAINT, "text.color": INK}
    return chart(folder / FILE, (10.5, 3.4), fill, settings)
