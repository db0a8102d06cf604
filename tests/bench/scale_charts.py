"""The charts of a scale: for each axis a row of small panels, log-log, as svg.

A chart shows what is in scale.json and nothing else, and drawn twice from the same figures it is the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Final

from tests.bench.cases import PATTERNS
from tests.bench.document import FAINT, INK, bare, chart
from tests.bench.scale_axes import AXES, REMEMBERED
from tests.bench.scale_report import Findings, Key, Value, each, resident, sender
from tests.bench.summary import cpu, together

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


@dataclass(frozen=True)
class Curve:
    """A line of an axis, by one of its figures."""

    line: str
    title: str
    value: Value = cpu
    style: str = ""


@dataclass(frozen=True)
class Panel:
    """One small chart."""

    axis: str
    title: str
    y: str
    curves: tuple[Curve, ...]
    #: where something changes, and what
    mark: tuple[int, str] | None = None
    #: panels of one row that may be compared have one scale
    shared: bool = True


def modes(value: Value) -> tuple[Curve, ...]:
    return (
        Curve("floor", "floor, HMAC", value),
        Curve("bccnd", "bccnd", value),
        Curve("floor_batch", "floor, HMAC, batch", value),
        Curve("bccnd_batch", "bccnd, batch mode", value),
    )


def streams(kind: str) -> tuple[Curve, ...]:
    return (
        Curve(f"{kind}_repeated", "runs of 16", style="repeated"),
        Curve(f"{kind}_alternating", "by turns", style="alternating"),
        Curve(f"{kind}_unique", "each a new one", style="unique"),
    )


def all_direct(value: Value) -> tuple[Curve, ...]:
    return (
        Curve("listeners", "no daemon", value),
        Curve("bccnd_all", "bccnd, everything", value),
        Curve("batch_all", "bccnd, batch mode, everything", value),
        Curve("bccnd_own", "bccnd, own share", value),
    )


#: the share of an axis that a figure below it takes up, for each panel of the row
CROWDED: Final = 0.05
FORGETS: Final = (REMEMBERED, "remembered to here")
#: file: its panels
CHARTS: Final = {
    "scaling-clients.svg": (
        Panel("clients", "a message", "ns of the relay", modes(cpu), shared=False),
        Panel("clients", "a delivery", "ns of the relay", modes(each), shared=False),
    ),
    "scaling-matching.svg": (
        Panel(
            *("shares", "each client its own share: a message", "ns of the relay"),
            (
                Curve("floor", "floor, one process"),
                Curve("bccnd", "bccnd, one process"),
                Curve("floor_each", "floor, a process each"),
                Curve("bccnd_each", "bccnd, a process each"),
            ),
        ),
        Panel(
            "patterns",
            "64 clients with patterns, one gets all: a message",
            "ns of the daemon",
            (Curve("bccnd", "bccnd"),),
        ),
    ),
    "scaling-sources.svg": (
        Panel(
            *("sources", "a message", "ns of the daemon"),
            (Curve("first", "heard for the first time"), Curve("bccnd", "heard again")),
            shared=False,
        ),
        Panel("sources", "resident memory of the daemon", "MB", (Curve("bccnd", "", resident),), shared=False),
    ),
    "scaling-channels.svg": (
        Panel("channels", "1 client: a message", "ns of the daemon", streams("one"), FORGETS, shared=False),
        Panel(
            "channels",
            f"64 clients x {PATTERNS} patterns, one gets all",
            "",
            streams("patterns"),
            FORGETS,
            shared=False,
        ),
        Panel("channels", "64 clients, all get all", "", streams("all"), FORGETS, shared=False),
    ),
    "scaling-payload.svg": (
        Panel("payload", "packet mode: a delivery", "ns of the relay", modes(each)[:2]),
        Panel("payload", "batch mode: a delivery", "ns of the relay", modes(each)[2:]),
    ),
    "scaling-direct.svg": (
        Panel("direct", "daemon and all programs: a message", "ns", all_direct(together)),
        Panel("direct", "sender with the kernel's receiving: a message", "ns", all_direct(sender)),
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
    highest, lowest = 0.0, float("inf")
    seen: set[int] = set()
    for curve in panel.curves:
        colour, dash, dot = STYLES[curve.style or curve.line]
        figures = [
            (x, found.figure(Key(panel.axis, curve.line, x), curve.value)) for x in found.xs(panel.axis, curve.line)
        ]
        known = [(x, figure) for x, figure in figures if figure is not None and x > 0]
        if not known:
            continue
        seen |= {x for x, _ in known}
        highest = max(highest, *(figure.most for _, figure in known))
        lowest = min(lowest, *(figure.least for _, figure in known))
        at, middle = [x for x, _ in known], [figure.median for _, figure in known]
        place.vlines(at, [one.least for _, one in known], [one.most for _, one in known], color=colour, linewidth=1)
        place.plot(
            *(at, middle),
            color=colour,
            linestyle=dash or "none",
            marker=dot,
            markersize=4,
            linewidth=1.5,
            label=curve.title,
        )
    if not seen:
        return
    # A flat line is to look flat: at least a decade, whatever the noise does.
    middle_of = (lowest * highest) ** 0.5
    place.set_ylim(min(lowest / 1.6, middle_of / 3.2), max(highest * 1.6, middle_of * 3.2))


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
    form: Callable[[float, object], str] = short
    lines = {curve.line for curve in panel.curves}
    xs = sorted({x for line in lines for x in found.xs(panel.axis, line) if x > 0})
    named = roomy(xs, crowded) if xs else set()
    place.set_xticks(xs, [short(x) if x in named else "" for x in xs])
    if panel.mark is not None:
        x, what = panel.mark
        place.axvline(x, color=INK, linewidth=0.8, linestyle=":")
        place.text(x / 1.25, place.get_ylim()[0] * 1.12, what, fontsize=7.5, color=INK, ha="right")
    place.set_yticks(ticks(*place.get_ylim()))
    place.yaxis.set_major_formatter(form)
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
