"""The charts of a report, each from facts to SVG.

Law: a chart shows what is in the facts and nothing else; None where there is nothing to show. What it shows by colour
it also shows by form, place or text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from bccnd.pipeline.report import words
from bccnd.pipeline.report.facts import Course, Facts, Link, by_sending_host
from bccnd.pipeline.report.svg import INKS, drawing, written

#: points: charts that fit on a phone, and those that scroll there
NARROW: Final = 430.0
WIDE: Final = 700.0
#: rows and columns of the matrix, of the time line and of bars
MATRIX: Final = 50
LINES: Final = 30
BARS: Final = 12
#: hosts that get a curve of their own
CURVES: Final = 4
#: loss from which on a cell has the next colour; the first is for no loss at all
LEVELS: Final = (0.0, 0.001, 0.01, 0.05, 0.2)
LEVEL_NAMES: Final = ("none", "below 0.1 %", "below 1 %", "below 5 %", "below 20 %", "20 % and more")
#: up to so many columns there is room for figures in the cells
_ROOMY: Final = 22
_STYLES: Final = (("c1", "-"), ("c2", "--"), ("c3", "-."), ("c4", ":"))


def level(ratio: float) -> int:
    return sum(ratio > limit for limit in LEVELS[:1]) + sum(ratio >= limit for limit in LEVELS[1:])


# -- the matrix


class Matrix(NamedTuple):
    """Loss by sender (rows) and receiver (columns), the worst first."""

    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    cells: Mapping[tuple[str, str], Link]
    #: whether the rows are sending hosts and no single senders
    grouped: bool
    #: rows and columns for which there is no room
    more_senders: int
    more_receivers: int


def matrix(facts: Facts, limit: int = MATRIX) -> Matrix:
    """Senders one by one as long as there is room for them, else by sending host."""
    links: Sequence[Link] = facts.links
    grouped = len({link.sender for link in links}) > limit
    if grouped:
        links = by_sending_host(links)
    losses: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for link in links:
        for place, name in enumerate((link.sender, link.host)):
            row = losses[place].setdefault(name, [0, 0])
            if not link.own:
                row[0] += link.lost
                row[1] += link.due
    senders, receivers = (
        sorted(one, key=lambda name: (-(one[name][0] / one[name][1] if one[name][1] else 0.0), name)) for one in losses
    )
    return Matrix(
        tuple(senders[:limit]),
        tuple(receivers[:limit]),
        {(link.sender, link.host): link for link in links},
        grouped,
        max(len(senders) - limit, 0),
        max(len(receivers) - limit, 0),
    )


def short_share(ratio: float) -> str:
    """A share in a cell: percent without its sign."""
    percent = 100 * ratio
    if percent <= 0:
        return ""
    if percent < 0.01:
        return "<.01"
    if percent < 1:
        return f"{percent:.2f}".lstrip("0")
    return f"{percent:.1f}" if percent < 10 else f"{percent:.0f}"


def draw_matrix(facts: Facts) -> str | None:
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    table = matrix(facts)
    if not table.senders or not table.receivers:
        return None
    rows, columns = len(table.senders), len(table.receivers)
    side = 26.0 if columns <= _ROOMY else 13.0
    tall = min(side, 20.0) if columns <= _ROOMY else 12.0
    width = max(160 + side * columns, 300.0)
    titles: dict[str, str] = {}
    empty: list[Any] = []
    with drawing(width, 62 + tall * rows + (30 if columns > 8 else 8)) as figure:
        place = figure.subplots()
        for y, sender in enumerate(table.senders):
            for x, host in enumerate(table.receivers):
                link = table.cells.get((sender, host))
                if link is None or not link.due:
                    place.plot([x], [y], marker="_", markersize=3, color=INKS["soft"], linewidth=0)
                    continue
                found = level(link.ratio)
                if not found:
                    empty.append((x, y))
                    continue
                gid = f"cell-{y}-{x}"
                place.add_patch(
                    Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, color=INKS[f"h{found}"], linewidth=0, gid=gid)
                )
                titles[gid] = (
                    f"{words.plain(host)} missed {words.share(link.ratio)} of {words.plain(sender)} "
                    f"({words.count(link.lost)} of {words.count(link.due)})"
                )
                if columns <= _ROOMY:
                    place.text(
                        *(x, y, short_share(link.ratio)),
                        ha="center",
                        va="center_baseline",
                        fontsize=7.5,
                        color=INKS[f"t{found}"],
                    )
        if empty:
            boxes = [
                Path(
                    [(x - 0.46, y - 0.46), (x + 0.46, y - 0.46), (x + 0.46, y + 0.46), (x - 0.46, y + 0.46), (0, 0)],
                    [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY],
                )
                for x, y in empty
            ]
            place.add_patch(PathPatch(Path.make_compound_path(*boxes), color=INKS["h0"], linewidth=0))
        place.set_xlim(-0.5, columns - 0.5)
        place.set_ylim(rows - 0.5, -0.5)
        place.xaxis.tick_top()
        place.xaxis.set_label_position("top")
        turned = max(map(len, table.receivers)) * 5.0 > side
        names = [words.shortened(name, 24) for name in table.receivers]
        place.set_xticks(range(columns), names, rotation=90 if turned else 0)
        place.set_yticks(range(rows), [words.shortened(name, 30) for name in table.senders])
        if columns > _ROOMY:
            place.tick_params(labelsize=7)
        place.set_xlabel("received by")
        place.set_ylabel("sent by")
        place.tick_params(length=0)
        for spine in place.spines.values():
            spine.set_visible(False)
        what = "hosts" if table.grouped else "senders"
        label = (
            f"Loss of {rows} {what} at {columns} receiving hosts, as coloured cells; the table below has the figures."
        )
        return written(figure, "matrix", label, titles)


# -- over time


def _hours(place: Any, facts: Facts) -> None:
    """A time axis in UTC that does not crowd."""
    from matplotlib.ticker import FixedLocator

    period = max(facts.period, 1)
    steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080]
    step = next(
        (one for one in steps if period / (one * words.MINUTE) <= 8),
        10_080 * max(1, period // (8 * 10_080 * words.MINUTE)),
    )
    width = step * words.MINUTE
    first = -(-facts.start // width) * width
    ticks = list(range(first, facts.end + 1, width))
    place.set_xlim(facts.start, facts.end)
    place.xaxis.set_major_locator(FixedLocator(ticks))
    short = step < 1440
    place.set_xticks(ticks, [f"{words.moment(at):%H:%M}" if short else f"{words.moment(at):%d %b}" for at in ticks])
    place.set_xlabel("time, UTC")


def worst(courses: Mapping[str, Course], limit: int = CURVES) -> list[str]:
    """The names with the highest loss, of those that lost anything."""
    lossy = [name for name, one in courses.items() if sum(one.lost)]
    return sorted(lossy, key=lambda name: (-sum(courses[name].lost) / max(sum(courses[name].due), 1), name))[:limit]


def percents(course: Course) -> list[float]:
    return [100 * lost / due if due > 0 else 0.0 for due, lost in zip(course.due, course.lost, strict=True)]


def draw_courses(facts: Facts) -> str | None:
    shown = worst(facts.receivers)
    if not shown:
        return None
    steps = len(next(iter(facts.receivers.values())).due)
    whole = Course(
        *(
            tuple(sum(getattr(one, part)[step] for one in facts.receivers.values()) for step in range(steps))
            for part in ("due", "lost", "absent")
        )
    )
    at = [facts.start + step * facts.step for step in range(steps + 1)]
    with drawing(WIDE, 210) as figure:
        place = figure.subplots()
        place.stairs(percents(whole), at, fill=True, color=INKS["c6"], label="all hosts together")
        for name, (colour, dash) in zip(shown, _STYLES, strict=False):
            place.stairs(
                *(percents(facts.receivers[name]), at),
                color=INKS[colour],
                linestyle=dash,
                linewidth=1.5,
                baseline=None,
                label=words.shortened(name, 24),
            )
        place.set_ylim(0, None)
        place.set_ylabel("lost, %")
        place.grid(axis="y")
        place.set_axisbelow(True)
        _hours(place, facts)
        figure.legend(loc="outside upper left", ncols=5, fontsize=8, handlelength=2.4)
        label = f"Loss over time, in percent; worst: {words.listing([words.plain(one) for one in shown])}."
        return written(figure, "courses", label)


class Line(NamedTuple):
    """A row of the time line: ``bars`` are (from, to, what), ``marks`` (when, what)."""

    name: str
    bars: tuple[tuple[int, int, str], ...]
    marks: tuple[tuple[int, str], ...]


#: what bars and marks stand for: ink, hatch or marker, words
BARS_OF: Final = {
    "gap": ("c1", "", "silent"),
    "open": ("alarm", "", "silent until the end"),
    "host_down": ("c2", "", "its whole host silent"),
    "absent": ("h0", "////", "not recording"),
}
MARKS_OF: Final = {
    "restart": ("c3", "^", "began anew"),
    "masked": ("c4", "v", "began anew, unnoticed by the daemons"),
    "jump": ("c5", "D", "its numbers leapt forward"),
}


def time_line(facts: Facts) -> list[Line]:
    """Everybody to whom something happened, those to whom most did first; hosts that were not recording last."""
    bars: dict[str, list[tuple[int, int, str]]] = {}
    marks: dict[str, list[tuple[int, str]]] = {}
    for one in facts.silences:
        if one.host is None and one.kind in BARS_OF:
            end = facts.end if one.end is None else min(one.end, facts.end)
            bars.setdefault(one.src, []).append((max(one.start, facts.start), end, one.kind))
    for epoch in facts.epochs:
        if epoch.cause in MARKS_OF:
            marks.setdefault(epoch.src, []).append((epoch.first, epoch.cause))
    names = sorted({*bars, *marks}, key=lambda name: (-len(bars.get(name, ())) - len(marks.get(name, ())), name))
    lines = [Line(name, tuple(bars.get(name, ())), tuple(marks.get(name, ()))) for name in names]
    for host, course in sorted(facts.receivers.items()):
        gone = _absences(course, facts)
        if gone:
            lines.append(Line(f"{host} (receiver)", tuple(gone), ()))
    return lines


def _absences(course: Course, facts: Facts) -> list[tuple[int, int, str]]:
    """Steps in which most of what came was not listened to, those beside each other together."""
    found: list[tuple[int, int, str]] = []
    for step, (due, absent) in enumerate(zip(course.due, course.absent, strict=True)):
        if absent <= due:
            continue
        start, end = facts.start + step * facts.step, min(facts.start + (step + 1) * facts.step, facts.end)
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end, "absent"))
    return found


def draw_time_line(facts: Facts) -> str | None:
    lines = time_line(facts)[:LINES]
    if not lines:
        return None
    with drawing(WIDE, 70 + 17 * len(lines)) as figure:
        place = figure.subplots()
        told: dict[str, Any] = {}
        least = facts.period / 300
        for y, line in enumerate(lines):
            for start, end, what in line.bars:
                ink, hatch, says = BARS_OF[what]
                bar = place.barh(
                    *(y, max(end - start, least)),
                    left=start,
                    height=0.55,
                    color=INKS[ink],
                    hatch=hatch,
                    linewidth=0,
                )
                told.setdefault(says, bar)
            for at, what in line.marks:
                ink, marker, says = MARKS_OF[what]
                (mark,) = place.plot([at], [y], marker=marker, color=INKS[ink], markersize=5.5, linestyle="none")
                told.setdefault(says, mark)
        place.set_ylim(len(lines) - 0.5, -0.5)
        place.set_yticks(range(len(lines)), [words.shortened(line.name, 34) for line in lines])
        place.grid(axis="x")
        place.set_axisbelow(True)
        place.tick_params(axis="y", length=0)
        _hours(place, facts)
        figure.legend(told.values(), told.keys(), loc="outside upper left", ncols=3, fontsize=8, handlelength=1.6)
        label = f"Time line of restarts and silences of {len(lines)} senders and hosts; the table below lists them."
        return written(figure, "events", label)


# -- bars


class Bar(NamedTuple):
    name: str
    value: int
    says: str


def draw_bars(name: str, bars: Sequence[Bar], unit: str, label: str, *, log: bool = False) -> str | None:
    """Horizontal bars with their figures; with ``log`` dots on a scale of powers of ten, where bars would deceive."""
    if not bars:
        return None
    with drawing(NARROW, 34 + 19 * len(bars)) as figure:
        place = figure.subplots()
        most = max(bar.value for bar in bars)
        for y, bar in enumerate(bars):
            if log:
                place.plot([0.8, bar.value], [y, y], color=INKS["line"], linewidth=1)
                place.plot([bar.value], [y], marker="o", markersize=6, color=INKS["c1"], linestyle="none")
            else:
                place.barh(y, bar.value, height=0.62, color=INKS["c1"], linewidth=0)
            place.annotate(
                *(bar.says, (bar.value, y)),
                xytext=(6 if log else 4, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=8,
            )
        if log:
            place.set_xscale("log")
            place.set_xlim(0.8, most * 12)
        else:
            place.set_xlim(0, most * 1.28)
        place.set_ylim(len(bars) - 0.5, -0.5)
        place.set_yticks(range(len(bars)), [words.shortened(bar.name, 34) for bar in bars])
        place.set_xticks([])
        place.minorticks_off()
        place.tick_params(axis="y", length=0)
        place.spines["bottom"].set_visible(False)
        place.set_xlabel(unit)
        return written(figure, name, label)


def draw_clocks(facts: Facts) -> str | None:
    clocks = sorted(facts.clocks, key=lambda one: (-abs(one.middle), one.host))[: 2 * BARS]
    if not clocks:
        return None
    with drawing(NARROW, 46 + 18 * len(clocks)) as figure:
        place = figure.subplots()
        for y, one in enumerate(clocks):
            place.plot([one.low / 1000, one.high / 1000], [y, y], color=INKS["c1"], linewidth=4, solid_capstyle="butt")
            place.plot([one.middle / 1000], [y], marker="o", markersize=5, color=INKS["ink"], linestyle="none")
            place.annotate(
                *(words.signed(one.middle), (max(one.middle, one.high) / 1000, y)),
                xytext=(6, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=8,
            )
        most = max(max(abs(one.low), abs(one.high), abs(one.middle)) for one in clocks) / 1000
        place.axvline(0, color=INKS["soft"], linewidth=0.8)
        if most > 20:
            place.set_xscale("symlog", linthresh=10)
            powers = [10**power for power in range(1, 10) if 10**power <= most * 3]
            every = powers[:: max(1, -(-len(powers) // 3))]
            ticks = [*(-one for one in reversed(every)), 0, *every]
            place.set_xticks(ticks, [words.signed(one * 1000) if one else "0" for one in ticks])
            place.set_xlim(-most * 1.5 if min(one.low for one in clocks) < -10_000 else -10, most * 12)
        else:
            place.set_xlim(-most * 1.3 or -1, most * 1.8 or 1)
            place.set_xlabel("ms")
        place.minorticks_off()
        place.grid(axis="x")
        place.set_axisbelow(True)
        place.set_ylim(len(clocks) - 0.5, -0.5)
        place.set_yticks(range(len(clocks)), [words.shortened(one.host, 24) for one in clocks])
        place.tick_params(axis="y", length=0)
        label = f"How far the clocks of {len(clocks)} hosts are from that of another host; the table has the figures."
        return written(figure, "clocks", label)
