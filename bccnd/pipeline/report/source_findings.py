"""Findings about programs and hosts that end, restart, fall silent, skip numbers, or do not record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.attribution import FEW
from bccnd.pipeline.report.facts import Facts, Silence, add_links, sending_host
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding, write

#: restarts from here on are a finding
OFTEN: Final = 3
#: programs of a host that fall silent within this time do so together, in microseconds
TOGETHER: Final = 120 * fmt.SECOND
#: part of what was sent while a host was not recording from which on it is a finding
ABSENT: Final = 0.02


def _starts(facts: Facts) -> Iterator[Finding]:
    for program, group in groupby(sorted(facts.starts), attrgetter("program")):
        starts = list(group)
        causes = [one.cause for one in starts if one.cause != "jump"]
        if (times := len(causes)) >= OFTEN:
            values = {"program": program, "times": times, "masked": causes.count("masked")}
            yield write(facts, "restarts", LOOK, (program,), values, times)
        if jumps := [one for one in starts if one.skipped]:
            most, total = max(jumps, key=attrgetter("skipped")), sum(one.skipped for one in jumps)
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
    for one in add_links(link._replace(program="") for link in facts.links if not link.own):
        if one.not_listening >= max(FEW, ABSENT * one.expected) and not _was_down(one.host, facts):
            rate, spans = one.not_listening / one.expected, facts.absences(one.host)
            values = {"host": one.host, "rate": rate, "absent": one.not_listening, "until": until.get(one.host)}
            values["spans"] = spans if len(spans) == 1 else []
            yield write(facts, "not_recording", NOTE, (one.host,), values, rate)


def _was_down(host: str, facts: Facts) -> bool:
    """Whether a host was not recording because it was down, which is a finding of its own."""
    times = [
        (one.start - TOGETHER, (facts.end if one.end is None else one.end) + TOGETHER)
        for one in facts.silences
        if one.kind == "host_down" and sending_host(one.program) == host
    ]
    spans = facts.absences(host)
    return bool(times) and all(any(start <= at and to <= end for start, end in times) for at, to in spans)


CHECKS: Final[tuple[Callable[[Facts], Iterable[Finding]], ...]] = (_starts, _down, _silences, _not_recording)
