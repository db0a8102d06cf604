"""`python -m tools.bench.charts`: the charts of docs/scaling.md, of what is in docs/figures.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import matplotlib  # type: ignore[import-not-found,unused-ignore]
from matplotlib.backends.backend_svg import FigureCanvasSVG  # type: ignore[import-not-found,unused-ignore]
from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]

from tools.bench.axes import GROWTH, Axis

DOCS: Final = Path(__file__).parents[2] / "docs"
#: what is drawn side by side
CHARTS: Final = {
    "scaling-clients.svg": ["clients"],
    "scaling-matching.svg": ["shares", "patterns"],
    "scaling-sources.svg": ["sources"],
    "scaling-channels.svg": ["channels"],
    "scaling-payload.svg": ["payload"],
    "scaling-direct.svg": ["direct"],
}


def fill(panel: Any, axis: Axis, costs: dict[str, dict[str, int]]) -> None:
    """Draw a line for each case of an axis."""
    for line in axis.lines:
        points = sorted((int(x), ns) for x, ns in costs.get(line.name, {}).items() if int(x))
        if points:
            panel.plot(*zip(*points, strict=True), marker="o", markersize=4, label=line.title)
    panel.set(title=axis.title, xlabel=axis.x, ylabel="ns for a message", xscale="log", yscale="log")
    panel.grid(color="#e3e6ea")
    panel.set_axisbelow(True)
    panel.legend(fontsize="small", frameon=False)


def main() -> None:
    """Write each chart whose axes were all measured."""
    sections = json.loads((DOCS / "figures.json").read_text())
    for name, axes in CHARTS.items():
        if not all(axis in sections for axis in axes):
            continue
        # The same file for the same figures.
        with matplotlib.rc_context({"svg.hashsalt": "bccnd"}):
            figure = Figure(figsize=(9.6, 4.2))
            FigureCanvasSVG(figure)
            for panel, axis in zip(figure.subplots(1, len(axes), squeeze=False)[0], axes, strict=True):
                fill(panel, GROWTH[axis], sections[axis]["cpu_ns"])
            figure.set_layout_engine("constrained")
            figure.savefig(DOCS / name, facecolor="white", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
