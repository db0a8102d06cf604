"""Findings about programs and hosts that end, restart, fall silent, skip numbers, or do not record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.attribution import FEW
from bccnd.pipeline.report.facts import Course, Facts, Silence, Start, sending_host
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding, write

#: restarts from here on are a finding
OFTEN: Final = 3
#: programs of a host that fall silent within this time do so together, in microseconds
TOGETHER: Final = 120 * fmt.SECOND
#: part of what was sent while a host was not recording from which on it is a finding
ABSENT: Final = 0.02


def _restarts(facts: Facts) -> Iterator[Finding]:
    causes: dict[str, list[str]] = {}
    for one in facts.starts:
        if one.cause != "jump":
            causes.setdefault(one.program, []).append(one.cause)
    for program, every in sorted(causes.items()):
        if (times := len(every)) >= OFTEN:
            values = {"program": program, "times": times, "masked": every.count("masked")}
            yield write(facts, "restarts", LOOK, (program,), values, times)


def _jumps(facts: Facts) -> Iterator[Finding]:
    programs: dict[str, list[Start]] = {}
    for one in facts.starts:
        if one.skipped:
            programs.setdefault(one.program, []).append(one)
    for program, jumps in sorted(programs.items()):
        most, total = max(jumps, key=lambda one: one.skipped), sum(one.skipped for one in jumps)
        values = {"program": program, "jumps": len(jumps), "total": total, "most": most.skipped}
        yield write(facts, "jump", LOOK, (program,), values, total, most.at)


def _silences(facts: Facts) -> Iterator[Finding]:
    left = set()
    for one in facts.silences:
        lasted = (facts.end if one.end is None else one.end) - one.start
        values = {"program": one.program, "lasted": max(lasted, 0)}
        if one.kind == "open" and one.basis != "heartbeat":
            left.add(one.program)
        elif one.kind == "open":
            yield write(facts, "died", URGENT, (one.program,), values, 0, one.start)
        elif one.kind == "gap" and one.basis == "heartbeat":
            yield write(facts, "silent", LOOK, (one.program,), values, lasted, one.start)
    if left:
        yield write(facts, "left", NOTE, sorted(left), {"programs": sorted(left)}, len(left))


def _down(facts: Facts) -> Iterator[Finding]:
    """All programs of a host at once, as one finding for each time."""
    groups: list[list[Silence]] = []
    down = (one for one in facts.silences if one.kind == "host_down")
    for one in sorted(down, key=lambda one: (sending_host(one.program), one.start)):
        first = groups[-1][0] if groups else None
        if first and sending_host(first.program) == sending_host(one.program) and one.start - first.start <= TOGETHER:
            groups[-1].append(one)
        else:
            groups.append([one])
    for group in groups:
        host, programs = sending_host(group[0].program), len({one.program for one in group})
        ends = [one.end for one in group if one.end is not None]
        values = {"host": host, "programs": programs, "end": max(ends) if len(ends) == len(group) else None}
        yield write(facts, "host_down", LOOK if ends else URGENT, (host,), values, programs, group[0].start)


def _not_recording(facts: Facts) -> Iterator[Finding]:
    until = {one.host: one.end for one in facts.recordings if one.end < facts.end - fmt.MINUTE}
    for host in facts.hosts:
        links = [link for link in facts.links if link.host == host and not link.own]
        expected, absent = sum(link.expected for link in links), sum(link.not_listening for link in links)
        if absent < FEW or absent < ABSENT * expected or _was_down(host, facts):
            continue
        values = {"host": host, "rate": absent / expected, "absent": absent, "until": until.get(host)}
        values["times"] = _gone(facts.receivers.get(host), facts)
        yield write(facts, "not_recording", NOTE, (host,), values, absent / expected)


def _was_down(host: str, facts: Facts) -> bool:
    """Whether a host was not recording because it was down, which is a finding of its own."""
    times = [
        (one.start - TOGETHER, (facts.end if one.end is None else one.end) + TOGETHER)
        for one in facts.silences
        if one.kind == "host_down" and sending_host(one.program) == host
    ]
    steps = _absent(facts.receivers.get(host))
    at = [facts.start + step * facts.step for step in steps]
    return bool(times) and all(any(start <= one <= end for start, end in times) for one in at)


def _absent(course: Course | None) -> list[int]:
    return [step for step, absent in enumerate(course.absent) if absent] if course else []


def _gone(course: Course | None, facts: Facts) -> str:
    steps = _absent(course)
    if not steps or len(steps) != steps[-1] - steps[0] + 1:
        return ""
    first = fmt.when(facts.start + steps[0] * facts.step, facts.period)
    last = fmt.when(min(facts.start + (steps[-1] + 1) * facts.step, facts.end), facts.period)
    return f", between {first} and {last} UTC"


CHECKS: Final[tuple[Callable[[Facts], Iterable[Finding]], ...]] = (_restarts, _jumps, _down, _silences, _not_recording)
