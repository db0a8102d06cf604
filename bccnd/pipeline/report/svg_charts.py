"""Computes the geometry of the charts over time; templates/charts.svg draws them.

What a chart shows by colour it also shows by form or text.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import Course, Facts, add_courses

#: units of the drawing: its width, the space for numbers and for names, the heights of a plot and of a line
WIDTH, LEFT, NAMES, HEIGHT, LINE = 760.0, 52.0, 210.0, 180.0, 18.0
#: hosts with a curve of their own, and lines of the time line
CURVES: Final = 4
LINES: Final = 30

#: what bars and marks stand for
BARS: Final = {"gap": "silent", "open": "silent until the end", "host_down": "host silent", "absent": "not recording"}
MARKS: Final = {
    "replaced": ("\N{BLACK CIRCLE}", "restarted"),
    "restart": ("\N{BLACK UP-POINTING TRIANGLE}", "numbers begin again"),
    "masked": ("\N{BLACK DOWN-POINTING TRIANGLE}", "the same, unnoticed by the daemons"),
    "jump": ("\N{BLACK DIAMOND}", "numbers skipped"),
}
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080)


class Line(NamedTuple):
    """A line of the time line: bars (from, to, what) and marks (at, what, numbers skipped)."""

    name: str
    bars: list[tuple[int, int, str]]
    marks: list[tuple[int, str, int]]


def x_of(at: int, facts: Facts, left: float) -> float:
    return round(left + (WIDTH - left - 22) * (at - facts.start) / max(facts.period, 1), 1)


def ticks(facts: Facts, left: float) -> list[tuple[float, str]]:
    """Return at most nine round times in UTC, with their places."""
    week = 10_080 * max(1, facts.period // (8 * 10_080 * fmt.MINUTE))
    step = next((minutes for minutes in _STEPS if facts.period <= 8 * minutes * fmt.MINUTE), week) * fmt.MINUTE
    first = -(-facts.start // step) * step
    form = "%H:%M" if step < fmt.DAY else "%d %b"
    return [(x_of(at, facts, left), format(fmt.moment(at), form)) for at in range(first, facts.end + 1, step)]


def rates(course: Course) -> list[float | None]:
    """Return the loss of each step; None where nothing was due."""
    return [lost / due if due > 0 else None for due, lost in zip(course.due, course.lost, strict=True)]


def loss_chart(facts: Facts) -> dict[str, Any]:
    """Return curves (name, style, path) of all hosts together, the worst ones, and the day before, with the places and
    labels of the axes; empty if nothing was lost."""
    lossy = {host: ratio for host, course in facts.receivers.items() if (ratio := course.ratio)}
    if not lossy:
        return {}
    worst = sorted(lossy, key=lambda name: (-lossy[name], name))[:CURVES]
    courses = [("all hosts", "all", add_courses(facts.receivers.values()))]
    if facts.before:
        courses.append(("all hosts, the day before", "before", add_courses(facts.before.values())))
    courses += [(name, f"c{place}", facts.receivers[name]) for place, name in enumerate(worst, 1)]
    top = max(rate or 0.0 for _, _, course in courses for rate in rates(course)) or 1.0
    curves = [(name, kind, _path(course, facts, top, kind == "all")) for name, kind, course in courses]
    levels = [(HEIGHT * (1 - part), fmt.share(top * part)) for part in (0.0, 0.5, 1.0)]
    return {"curves": curves, "levels": levels, "ticks": ticks(facts, LEFT)}


def _path(course: Course, facts: Facts, top: float, closed: bool) -> str:
    """Draw a step curve, with a gap where nothing was due; closed, it is an area above zero."""
    parts: list[str] = []
    is_open = False
    for step, rate in enumerate([*rates(course), None]):
        if rate is None:
            parts += [f"V{HEIGHT}Z"] if is_open and closed else []
        else:
            first, last = (min(facts.start + (step + ahead) * facts.step, facts.end) for ahead in (0, 1))
            y = round(HEIGHT * (1 - rate / top), 1)
            begin = "" if is_open else f"M{x_of(first, facts, LEFT)} {HEIGHT if closed else y}"
            parts.append(f"{begin}V{y}H{x_of(last, facts, LEFT)}")
        is_open = rate is not None
    return "".join(parts)


def time_line(facts: Facts) -> list[Line]:
    """Return a line for each program with restarts or silences, those with most first, then hosts that were not
    recording."""
    lines: dict[str, Line] = {}
    for silence in facts.silences:
        if silence.kind in BARS:
            end = facts.end if silence.end is None else min(silence.end, facts.end)
            line = lines.setdefault(silence.program, Line(silence.program, [], []))
            line.bars.append((max(silence.start, facts.start), end, silence.kind))
    for start in facts.starts:
        lines.setdefault(start.program, Line(start.program, [], [])).marks.append(start[1:])
    ranked = sorted(lines.values(), key=lambda line: (-len(line.bars) - len(line.marks), line.name))
    absent = ((host, [(*span, "absent") for span in facts.absences(host)]) for host in facts.hosts)
    return ranked + [Line(host, bars, []) for host, bars in absent if bars]
