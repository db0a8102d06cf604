"""Checks that derive findings from the facts of a report. A fleet without faults has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, combinations, groupby
from operator import attrgetter, itemgetter
from statistics import median
from typing import Any, Final

from bccnd.fleet.attribution import FEW, THIN, WORTH, Loss, attribute
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.common_causes import cluster, join_common_causes
from bccnd.pipeline.report.facts import (
    Clock,
    Course,
    Facts,
    Link,
    MissingRecords,
    add_courses,
    add_links,
    by_sending_host,
    sending_host,
)
from bccnd.pipeline.report.findings import LOOK, NOTE, URGENT, ReportFinding, describe, rank

#: loss from here on is urgent: one message in twenty
HEAVY: Final = 0.05
#: extra copies for each message from which on everything is sent twice, and what two copies cannot exceed
TWICE: Final = 0.5
THRICE: Final = 1.05
#: loss at a host that copies must prevent to be worth their traffic
HELPS: Final = 0.01
#: loss is brief if this part of it falls into at most that part of the period
MOST: Final = 0.9
BRIEF: Final = 0.25
#: restarts from here on are a finding
OFTEN: Final = 3
#: programs of a host that fall silent within this time do so together, in microseconds
TOGETHER: Final = 120 * fmt.SECOND
#: part of what was sent while a host was not recording from which on it is a finding
ABSENT: Final = 0.02
#: clocks that differ by less are right; from the second on, times of two hosts cannot be compared; microseconds
CLOCK: Final = 100_000
CLOCK_BAD: Final = 1_000_000
#: messages in a minute below which no channel floods, and how many times those of a usual channel
FLOOD: Final = 600
FLOOD_TIMES: Final = 10
#: verdict -> kind, severity, least number of datagrams
_REFUSED: Final = {
    "integrity_failed": ("forged", URGENT, 1),
    "replayed": ("forged", URGENT, FEW),
    "integrity_missing": ("forged", LOOK, FEW),
    "integrity_unknown": ("forged", LOOK, FEW),
}


def run_checks(facts: Facts) -> list[ReportFinding]:
    """Return all findings, the most important first; those with a common cause are one."""
    checks = (_losses, _late, _receives_twice, _sends_twice, _starts, _unordered, _down, _silences, _not_recording)
    more = (_missing, _unusable, _refusals, _floods, _clocks)
    return rank(join_common_causes([finding for check in (*checks, *more) for finding in check(facts)], facts))


# -- messages that were lost, late, or received twice


def _losses(facts: Facts) -> Iterator[ReportFinding]:
    causes = attribute(by_sending_host(facts.links))
    if causes.segment:
        yield _loss(facts, "segment", causes.segment, add_courses(facts.receivers.values()))
    for loss in causes.receivers:
        course = facts.receivers.get(loss.host)
        alone = all(sending_host(link.program) in causes.alone for link in facts.links if link.host == loss.host)
        yield _loss(facts, "receiver", loss, course, alone=alone, outage=_outage(course, facts))
    missed, unsent = ({loss.sender: loss for loss in losses} for losses in (causes.senders, causes.unsent))
    for sender in sorted({*missed, *unsent}):
        losses = [by_sender[sender] for by_sender in (missed, unsent) if sender in by_sender]
        both = {"missed": missed.get(sender), "unsent": unsent.get(sender), "mostly": _mostly(facts.links, sender)}
        yield _loss(facts, "sender", max(losses, key=attrgetter("rate")), facts.sending.get(sender), **both)
    for loss in causes.pairs:
        course = facts.receivers.get(loss.host)
        if course is not None and loss.lost < MOST * sum(course.lost):
            course = None
        mostly = _mostly(facts.links, loss.sender, loss.host)
        yield _loss(facts, "link", loss, course, alone=loss.sender in causes.alone, mostly=mostly)


def _loss(facts: Facts, kind: str, loss: Loss, course: Course | None, **values: Any) -> ReportFinding:
    steps = _brief(course)
    values["times"] = f" Nearly all of it between {_times(steps, facts, 'and')} UTC." if steps else ""
    values |= {"cause": loss, "host": loss.host, "sender": loss.sender}
    about = [name for name in (loss.host, loss.sender) if name]
    finding = describe(facts, kind, URGENT if loss.rate >= HEAVY else LOOK, about, values, loss.rate)
    return finding._replace(began=facts.start + steps[0] * facts.step if steps else None)


def _brief(course: Course | None) -> tuple[int, int] | None:
    """Find the short time in which nearly all was lost, if there is one, as steps without the end."""
    if course is None or len(course.lost) < 4 or not sum(course.lost):
        return None
    before = [0, *accumulate(course.lost)]
    need = MOST * before[-1]
    spans = combinations(range(len(before)), 2)
    length, first = min((last - first, first) for first, last in spans if before[last] - before[first] >= need)
    return (first, first + length) if length <= BRIEF * len(course.lost) else None


def _outage(course: Course | None, facts: Facts) -> str:
    """Format the short time in which a host received almost nothing, if that is when it lost most."""
    steps = _brief(course)
    if not steps or not course or sum(course.lost[slice(*steps)]) < MOST * sum(course.due[slice(*steps)]):
        return ""
    return _times(steps, facts, "to")


def _times(steps: tuple[int, int], facts: Facts, word: str) -> str:
    ends = (min(facts.start + step * facts.step, facts.end) for step in steps)
    return f" {word} ".join(fmt.when(at, facts.period) for at in ends)


def _mostly(links: Iterable[Link], sender: str, host: str | None = None) -> str:
    """Name the one program of a host that the loss concerns, if the host has several."""
    lost: dict[str, int] = {}
    for link in links:
        if sending_host(link.program) == sender and not link.own and host in (None, link.host):
            lost[link.program] = lost.get(link.program, 0) + link.lost
    worst = max(lost, key=lambda program: lost[program], default="")
    if len(lost) < 2 or not lost[worst] or lost[worst] < MOST * sum(lost.values()):
        return ""
    return f" Nearly all of it came from {fmt.plain(worst)}."


def _by_host(facts: Facts) -> dict[str, Link]:
    return {link.host: link for link in add_links(link._replace(program="") for link in facts.links if not link.own)}


def _late(facts: Facts) -> Iterator[ReportFinding]:
    hosts = _by_host(facts)
    seen, late = (sum(getattr(link, name) for link in hosts.values()) for name in ("seen", "late"))
    if late >= FEW and late >= WORTH * seen:
        worst = sorted((host for host in hosts if hosts[host].late), key=lambda host: -hosts[host].late)
        yield describe(facts, "late", LOOK, worst[:3], {"count": late, "seen": seen, "hosts": worst}, late / seen)


def _receives_twice(facts: Facts) -> Iterator[ReportFinding]:
    """Find receivers that get everything twice while others do not."""
    rates = {host: link.dup / link.seen for host, link in _by_host(facts).items() if link.seen >= THIN}
    usual = median(rates.values()) if len(rates) > 1 else 1.0
    for host, rate in sorted(rates.items()):
        if rate >= TWICE and usual < TWICE / 5:
            yield describe(facts, "copies", LOOK, (host,), {"host": host, "rate": rate, "usual": usual}, rate)


def _sends_twice(facts: Facts) -> Iterator[ReportFinding]:
    """Find whether sending twice prevents loss: how often both copies arrive shows how many single copies are lost."""
    links = [link for link in facts.links if not link.own and link.seen >= THIN]
    by_program = add_links(link._replace(host="") for link in links)
    programs = sorted(link.program for link in by_program if TWICE <= link.dup / link.seen <= THRICE)
    if not programs or any(_receives_twice(facts)):
        return
    # for each host, the loss of single copies and that of messages
    losses: dict[str, tuple[float, float]] = {}
    for link in add_links(link._replace(program="") for link in links if link.program in programs):
        if link.due:
            again = min(link.dup / link.seen, 1.0)
            losses[link.host] = (1 - again) / (1 + again), link.ratio or 0.0
    single, now = (median(loss[place] for loss in losses.values()) for place in range(2))
    helped = [host for host, loss in sorted(losses.items()) if loss[0] - loss[1] >= HELPS]
    verdict = "few" if now > single / 2 else "all"
    if single < WORTH:
        verdict = "some" if helped else "none"
    worst = max(((host, losses[host]) for host in helped), key=itemgetter(1), default=None)
    values = {"programs": programs, "helped": helped, "worst": worst, "single": single, "now": now, "verdict": verdict}
    yield describe(facts, "twice", NOTE, programs, values, len(programs))


# -- programs and hosts that end, restart, fall silent, skip numbers, or do not record


def _starts(facts: Facts) -> Iterator[ReportFinding]:
    for program, group in groupby(sorted(facts.starts), attrgetter("program")):
        starts = list(group)
        causes = [start.cause for start in starts if start.cause != "jump"]
        if (times := len(causes)) >= OFTEN:
            values = {"program": program, "times": times, "masked": causes.count("masked")}
            yield describe(facts, "restarts", LOOK, (program,), values, times)
        if jumps := [start for start in starts if start.skipped]:
            most, total = max(jumps, key=attrgetter("skipped")), sum(start.skipped for start in jumps)
            values = {"program": program, "jumps": len(jumps), "total": total, "most": most.skipped}
            yield describe(facts, "jump", LOOK, (program,), values, total, most.at)


def _unordered(facts: Facts) -> Iterator[ReportFinding]:
    for program, sources, found in facts.unordered:
        values = {"program": program, "sources": sources, "found": found}
        yield describe(facts, "unordered", LOOK, (program,), values, sources)


def _silences(facts: Facts) -> Iterator[ReportFinding]:
    left = set()
    for silence in facts.silences:
        lasted = (facts.end if silence.end is None else silence.end) - silence.start
        values = {"program": silence.program, "lasted": max(lasted, 0)}
        if silence.kind == "open" and silence.basis != "heartbeat":
            left.add(silence.program)
        elif silence.kind == "open":
            yield describe(facts, "died", URGENT, (silence.program,), values, 0, silence.start)
        elif silence.kind == "gap" and silence.basis == "heartbeat":
            yield describe(facts, "silent", LOOK, (silence.program,), values, lasted, silence.start)
    if left:
        yield describe(facts, "left", NOTE, sorted(left), {"programs": sorted(left)}, len(left))


def _down(facts: Facts) -> Iterator[ReportFinding]:
    """Find times in which all programs of a host were silent at once."""
    down = (silence for silence in facts.silences if silence.kind == "host_down")
    for group in cluster(down, lambda silence: sending_host(silence.program), attrgetter("start"), TOGETHER):
        host, programs = sending_host(group[0].program), len({silence.program for silence in group})
        ends = [silence.end for silence in group if silence.end is not None]
        values = {"host": host, "programs": programs, "end": max(ends) if len(ends) == len(group) else None}
        yield describe(facts, "host_down", LOOK if ends else URGENT, (host,), values, programs, group[0].start)


def _not_recording(facts: Facts) -> Iterator[ReportFinding]:
    until = {recording.host: recording.end for recording in facts.recordings if recording.end < facts.end - fmt.MINUTE}
    for link in _by_host(facts).values():
        if link.not_listening >= max(FEW, ABSENT * link.expected) and not _was_down(link.host, facts):
            rate, spans = link.not_listening / link.expected, facts.absences(link.host)
            values = {"host": link.host, "rate": rate, "absent": link.not_listening, "until": until.get(link.host)}
            values["spans"] = spans if len(spans) == 1 else []
            yield describe(facts, "not_recording", NOTE, (link.host,), values, rate)


def _was_down(host: str, facts: Facts) -> bool:
    """Return whether a host was not recording because it was down, which is a finding of its own."""
    times = [
        (silence.start - TOGETHER, (facts.end if silence.end is None else silence.end) + TOGETHER)
        for silence in facts.silences
        if silence.kind == "host_down" and sending_host(silence.program) == host
    ]
    spans = facts.absences(host)
    return bool(times) and all(any(start <= at and to <= end for start, end in times) for at, to in spans)


# -- what of the journal is missing or cannot be used


def _missing(facts: Facts) -> Iterator[ReportFinding]:
    for host, group in groupby(sorted(facts.missing, key=attrgetter("host")), attrgetter("host")):
        parts = list(group)
        most, records = max(parts, key=_count_records), sum(map(_count_records, parts))
        values = {"host": host, "records": records, "parts": len(parts), "most": most}
        yield describe(facts, "missing", LOOK, (host,), values, records)


def _count_records(missing: MissingRecords) -> int:
    return missing.last - missing.first + 1


def _unusable(facts: Facts) -> Iterator[ReportFinding]:
    for kind, has_unknown_clock in (("damaged", False), ("unknown_clock", True)):
        files = [file for file in facts.unusable if file.has_unknown_clock == has_unknown_clock]
        if files:
            hosts = sorted({file.host for file in files if file.host})
            finding = describe(facts, kind, LOOK, hosts, {"files": files, "hosts": hosts}, len(files))
            yield finding._replace(members=tuple(file.reason for file in files))


# -- refused datagrams, busy channels and clocks


def _refusals(facts: Facts) -> Iterator[ReportFinding]:
    for refusals in facts.refusals:
        texts = refusals.verdict if refusals.verdict in _REFUSED else "unknown"
        kind, severity, least = _REFUSED.get(texts, ("unknown", NOTE, FEW))
        if refusals.verdict != "internal_error" and refusals.datagrams >= least:
            values = {"refusals": refusals, "peer": refusals.peer or "an unknown address"}
            yield describe(facts, kind, severity, (refusals.peer,), values, refusals.datagrams, texts=texts)


def _floods(facts: Facts) -> Iterator[ReportFinding]:
    minutes = max(facts.period / fmt.MINUTE, 1)
    for channel in facts.channels if len(facts.channels) > 3 else ():
        alone = channel.messages >= facts.messages / 2 or channel.peak >= channel.messages / minutes * 5
        if channel.peak < FLOOD or not alone:
            continue
        usual = median(other.peak for other in facts.channels if other is not channel)
        if channel.peak >= FLOOD_TIMES * usual:
            yield describe(facts, "flood", LOOK, (channel.name,), {"channel": channel, "usual": usual}, channel.peak)


def _clocks(facts: Facts) -> Iterator[ReportFinding]:
    groups: dict[str, list[Clock]] = {}
    for clock in facts.clocks:
        groups.setdefault(clock.against, []).append(clock)
    for against, group in groups.items():
        offsets = {against: 0, **{clock.host: clock.middle for clock in group}}
        middle = round(median(offsets.values())) if len(offsets) > 2 else 0
        for host, offset in sorted(offsets.items()):
            off = offset - middle
            if abs(off) >= CLOCK:
                values = {"host": host, "off": off, "others": len(offsets) - 1}
                yield describe(facts, "clock", LOOK if abs(off) >= CLOCK_BAD else NOTE, (host,), values, abs(off))
