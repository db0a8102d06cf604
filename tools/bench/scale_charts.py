"""The charts of a scale: for each axis a row of small panels, log-log, as svg, of what is in scale.json."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.bench.cases import PATTERNS
from tools.bench.document import FAINT, INK, bare, chart
from tools.bench.findings import Findings, Key, Value, cpu, each, resident, sender, together
from tools.bench.scale_axes import AXES, REMEMBERED

#: of what is compared; who is held against whom has the same hue, the floor the lighter one
BLUE, ORANGE, PURPLE, GREEN, GREY, PALE = "#1f6fb4", "#d9822b", "#7d5fa8", "#3c8c5a", "#8b939c", "#c9a27a"
STYLES: Final = {
    "floor": (GREY, "--", "s"),
    "bccnd": (BLUE, "-", "o"),
    "floor_batch": (PALE, "--", "s"),
    "bccnd_batch": (ORANGE, "-", "o"),
    "floor_each": (PALE, "--", "s"),
    "bccnd_each": (ORANGE, "-", "o"),
    "first": (PURPLE, "-", "D"),
    "repeated": (BLUE, "-", "o"),
    "alternating": (ORANGE, "-", "o"),
    "unique": (PURPLE, "none", "D"),
    "listeners": (GREY, "--", "s"),
    "bccnd_all": (BLUE, "-", "o"),
    "batch_all": (ORANGE, "-", "o"),
    "bccnd_own": (GREEN, "-", "o"),
}


class Panel(NamedTuple):
    """One small chart: some lines of an axis, by one of their figures."""

    axis: str
    title: str
    lines: tuple[str, ...]
    value: Value = cpu
    y: str = "ns"


PACKET, BATCH = ("floor", "bccnd"), ("floor_batch", "bccnd_batch")
DIRECT: Final = ("listeners", "bccnd_all", "batch_all", "bccnd_own")


def channels(title: str, kind: str) -> Panel:
    return Panel("channels", title, tuple(f"{kind}_{name}" for name in ("repeated", "alternating", "unique")))


#: those whose panels have one scale
SHARED: Final = ("scaling-matching.svg", "scaling-payload.svg", "scaling-direct.svg")
CHARTS: Final = {
    "scaling-clients.svg": [
        Panel("clients", "a message", PACKET + BATCH),
        Panel("clients", "a delivery", PACKET + BATCH, each),
    ],
    "scaling-matching.svg": [
        Panel("shares", "each client its own share: a message", ("floor", "bccnd", "floor_each", "bccnd_each")),
        Panel("patterns", "64 clients with patterns, one gets all: a message", ("bccnd",)),
    ],
    "scaling-sources.svg": [
        Panel("sources", "a message", ("first", "bccnd")),
        Panel("sources", "resident memory of the daemon", ("bccnd",), resident, "MB"),
    ],
    "scaling-channels.svg": [
        channels("1 client", "one"),
        channels(f"64 clients with {PATTERNS} patterns each, one gets all", "patterns"),
        channels("64 clients get all", "all"),
    ],
    "scaling-payload.svg": [
        Panel("payload", "packet mode: a delivery", PACKET, each),
        Panel("payload", "batch mode: a delivery", BATCH, each),
    ],
    "scaling-direct.svg": [
        Panel("direct", "daemon and all programs: a message", DIRECT, together),
        Panel("direct", "sender with the kernel's receiving: a message", DIRECT, sender),
    ],
}


def write(found: Findings, folder: Path) -> bool:
    """The charts of all axes that have figures; False if there are none because matplotlib is missing."""
    return all(
        chart(folder / name, (9.6, 3.3), partial(fill, found=found, panels=panels, shared=name in SHARED))
        for name, panels in CHARTS.items()
        if all(found.xs(panel.axis) for panel in panels)
    )


def fill(figure: Any, found: Findings, panels: Sequence[Panel], shared: bool) -> None:
    """The panels of a chart, side by side."""
    across = figure.subplots(1, len(panels), squeeze=False, sharey=shared)[0]
    for place, panel in zip(across, panels, strict=True):
        draw(place, found, panel)


def draw(place: Any, found: Findings, panel: Panel) -> None:
    """One panel: its curves, with whiskers from the least to the most."""
    place.set_xscale("log")
    place.set_yscale("log")
    for line in panel.lines:
        colour, dash, dot = STYLES.get(line) or STYLES[line.rpartition("_")[2]]
        figures = {x: found.figure(Key(panel.axis, line, x), panel.value) for x in found.xs(panel.axis, line) if x}
        known = {x: figure for x, figure in figures.items() if figure is not None}
        place.vlines(list(known), [one.least for one in known.values()], [one.most for one in known.values()], colour)
        title = AXES[panel.axis].line(line).title.removeprefix(f"{panel.title}; ")
        medians = [one.median for one in known.values()]
        place.plot(list(known), medians, color=colour, linestyle=dash, marker=dot, markersize=4, label=title)
    # A flat line is to look flat: at least a decade, whatever the noise does.
    lowest, highest = place.get_ylim()
    middle = (lowest * highest) ** 0.5
    place.set_ylim(min(lowest, middle / 3.2), max(highest, middle * 3.2))
    if panel.axis == "channels":
        place.axvline(REMEMBERED, color=INK, linewidth=0.8, linestyle=":", label="remembered to here")
    for axis in (place.xaxis, place.yaxis):
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_formatter("")
    place.set_title(panel.title, fontsize=9.5, loc="left", color=INK)
    place.set_xlabel(AXES[panel.axis].x, fontsize=8.5, color=INK)
    place.set_ylabel(panel.y, fontsize=8.5, color=INK)
    place.tick_params(labelsize=8, colors=INK)
    place.grid(color=FAINT, linewidth=0.8)
    bare(place, "top", "right")
    place.legend(fontsize=7.5, frameon=False, labelcolor=INK)
