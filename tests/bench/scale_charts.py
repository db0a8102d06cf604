"""The charts of a scale: for each axis a row of small panels, log-log, as svg.

A chart shows what is in scale.json and nothing else, and drawn twice from the same figures it is the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench.cases import PATTERNS
from tests.bench.document import FAINT, INK, bare, chart
from tests.bench.scale_axes import AXES, REMEMBERED
from tests.bench.scale_report import Findings, Key, Value, each, resident, sender
from tests.bench.summary import Spread, cpu, together

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
    "unique": (PURPLE, "", "D"),
    "listeners": (GREY, "--", "s"),
    "bccnd_all": (BLUE, "-", "o"),
    "batch_all": (ORANGE, "-", "o"),
    "bccnd_own": (GREEN, "-", "o"),
}


class Curve(NamedTuple):
    """A line of an axis, by one of its figures."""

    line: str
    title: str
    value: Value = cpu

    @property
    def style(self) -> tuple[str, str, str]:
        return STYLES.get(self.line) or STYLES[self.line.rpartition("_")[2]]


class Panel(NamedTuple):
    """One small chart."""

    axis: str
    title: str
    y: str
    curves: tuple[Curve, ...]
    #: panels of one row that may be compared have one scale
    shared: bool = False
    #: where something changes, and what
    mark: tuple[int, str] | None = None


def curves(value: Value = cpu, **titles: str) -> tuple[Curve, ...]:
    """The figure of some lines, by their titles."""
    return tuple(Curve(line, title, value) for line, title in titles.items())


def modes(value: Value) -> tuple[Curve, ...]:
    return (
        *curves(value, floor="floor, HMAC", bccnd="bccnd"),
        *curves(value, floor_batch="floor, HMAC, batch", bccnd_batch="bccnd, batch mode"),
    )


def streams(title: str, y: str, kind: str) -> Panel:
    titles = {"repeated": "runs of 16", "alternating": "by turns", "unique": "each a new one"}
    lines = tuple(Curve(f"{kind}_{name}", what) for name, what in titles.items())
    return Panel("channels", title, y, lines, mark=(REMEMBERED, "remembered to here"))


def direct(title: str, value: Value) -> Panel:
    lines = curves(
        value,
        listeners="no daemon",
        bccnd_all="bccnd, everything",
        batch_all="bccnd, batch mode, everything",
        bccnd_own="bccnd, own share",
    )
    return Panel("direct", title, "ns", lines, shared=True)


SHARES: Final = curves(
    floor="floor, one process",
    bccnd="bccnd, one process",
    floor_each="floor, a process each",
    bccnd_each="bccnd, a process each",
)
#: the share of an axis that a figure below it takes up, for each panel of the row
CROWDED: Final = 0.05
#: file: its panels
CHARTS: Final = {
    "scaling-clients.svg": (
        Panel("clients", "a message", "ns of the relay", modes(cpu)),
        Panel("clients", "a delivery", "ns of the relay", modes(each)),
    ),
    "scaling-matching.svg": (
        Panel("shares", "each client its own share: a message", "ns of the relay", SHARES, shared=True),
        Panel(
            *("patterns", "64 clients with patterns, one gets all: a message", "ns of the daemon"),
            curves(bccnd="bccnd"),
            shared=True,
        ),
    ),
    "scaling-sources.svg": (
        Panel(
            *("sources", "a message", "ns of the daemon"),
            curves(first="heard for the first time", bccnd="heard again"),
        ),
        Panel("sources", "resident memory of the daemon", "MB", curves(resident, bccnd="")),
    ),
    "scaling-channels.svg": (
        streams("1 client: a message", "ns of the daemon", "one"),
        streams(f"64 clients x {PATTERNS} patterns, one gets all", "", "patterns"),
        streams("64 clients, all get all", "", "all"),
    ),
    "scaling-payload.svg": (
        Panel("payload", "packet mode: a delivery", "ns of the relay", modes(each)[:2], shared=True),
        Panel("payload", "batch mode: a delivery", "ns of the relay", modes(each)[2:], shared=True),
    ),
    "scaling-direct.svg": (
        direct("daemon and all programs: a message", together),
        direct("sender with the kernel's receiving: a message", sender),
    ),
}


def write(found: Findings, folder: Path) -> bool:
    """The charts of all axes that have figures; False if there are none because matplotlib is missing."""
    return all(
        chart(folder / name, (9.6, 3.3), partial(fill, found=found, panels=panels))
        for name, panels in CHARTS.items()
        if all(found.xs(panel.axis) for panel in panels)
    )


def fill(figure: Any, found: Findings, panels: Sequence[Panel]) -> None:
    """The panels of a chart, side by side."""
    across = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, panel in zip(across, panels, strict=True):
        draw(place, found, panel)
    if all(panel.shared for panel in panels):
        limits = [place.get_ylim() for place in across]
        for place in across:
            place.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    for place, panel in zip(across, panels, strict=True):
        dress(place, found, panel, CROWDED * len(panels))


def draw(place: Any, found: Findings, panel: Panel) -> None:
    """One panel: its curves, with whiskers from the least to the most."""
    place.set_xscale("log")
    place.set_yscale("log")
    seen: list[Spread] = []
    for curve in panel.curves:
        colour, dash, dot = curve.style
        figures = {
            x: found.figure(Key(panel.axis, curve.line, x), curve.value) for x in found.xs(panel.axis, curve.line)
        }
        known = {x: figure for x, figure in figures.items() if figure is not None and x > 0}
        if known:
            seen += known.values()
            whiskers = [one.least for one in known.values()], [one.most for one in known.values()]
            place.vlines(list(known), *whiskers, color=colour, linewidth=1)
            place.plot(
                *(list(known), [one.median for one in known.values()]),
                color=colour,
                linestyle=dash or "none",
                linewidth=1.5,
                marker=dot,
                markersize=4,
                label=curve.title,
            )
    if seen:
        # A flat line is to look flat: at least a decade, whatever the noise does.
        lowest, highest = min(one.least for one in seen), max(one.most for one in seen)
        middle = (lowest * highest) ** 0.5
        place.set_ylim(min(lowest / 1.6, middle / 3.2), max(highest * 1.6, middle * 3.2))


def ticks(least: float, most: float) -> list[float]:
    """1, 2, 5, 10, ... or, over more than two decades, 1, 10, 100, ..."""
    steps = (1, 2, 5) if most / least < 200 else (1,)
    every = [step * 10.0**power for power in range(-2, 10) for step in steps]
    return [one for one in every if least <= one <= most]


def short(value: float, _position: object = None) -> str:
    """1,024, 10k, 1M."""
    if value >= 1_000_000:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 10_000 else f"{value:,g}"


def roomy(xs: Sequence[int], crowded: float) -> set[int]:
    """Those that can be written below an axis without touching each other; the last one always."""
    kept: list[int] = []
    whole = log(xs[-1] / xs[0]) if len(xs) > 1 else 1.0
    for x in reversed(xs):
        if not kept or log(kept[-1] / x) > crowded * whole:
            kept.append(x)
    return set(kept)


def dress(place: Any, found: Findings, panel: Panel, crowded: float) -> None:
    """Axes, title, legend, and where something changes."""
    lines = {curve.line for curve in panel.curves}
    xs = sorted({x for line in lines for x in found.xs(panel.axis, line) if x > 0})
    named = roomy(xs, crowded) if xs else set()
    place.set_xticks(xs, [short(x) if x in named else "" for x in xs])
    if panel.mark is not None:
        x, what = panel.mark
        place.axvline(x, color=INK, linewidth=0.8, linestyle=":")
        place.text(x / 1.25, place.get_ylim()[0] * 1.12, what, fontsize=7.5, color=INK, ha="right")
    place.set_yticks(ticks(*place.get_ylim()))
    place.yaxis.set_major_formatter(short)
    place.minorticks_off()
    place.set_title(panel.title, fontsize=9.5, loc="left", color=INK)
    place.set_xlabel(AXES[panel.axis].x, fontsize=8.5, color=INK)
    place.set_ylabel(panel.y, fontsize=8.5, color=INK)
    place.tick_params(labelsize=8, length=2.5, colors=INK)
    place.grid(color=FAINT, linewidth=0.8)
    bare(place, "top", "right")
    for side in ("left", "bottom"):
        place.spines[side].set_color("#a9b0b7")
    if any(curve.title for curve in panel.curves):
        place.legend(fontsize=7.5, frameon=False, handlelength=2.2, labelcolor=INK)
