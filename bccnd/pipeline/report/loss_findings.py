"""Findings about messages that were lost, late, or received twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Final

from bccnd.pipeline.report import attribution
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.attribution import FEW, THIN, WORTH, Attribution, Loss
from bccnd.pipeline.report.facts import Course, Facts, Link, add_courses, by_sending_host, sending_host
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding, write

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


def _severity(rate: float) -> int:
    return URGENT if rate >= HEAVY else LOOK


def _brief(course: Course | None) -> tuple[int, int] | None:
    """The short time in which nearly all was lost, if there is one, as steps without the end."""
    if course is None or len(course.lost) < 4 or not sum(course.lost):
        return None
    need = MOST * sum(course.lost)
    best = (0, len(course.lost))
    first, held = 0, 0
    for last, lost in enumerate(course.lost):
        held += lost
        while held - course.lost[first] >= need:
            held -= course.lost[first]
            first += 1
        if held >= need and last + 1 - first < best[1] - best[0]:
            best = first, last + 1
    return best if best[1] - best[0] <= BRIEF * len(course.lost) else None


def _times(steps: tuple[int, int], facts: Facts) -> list[str]:
    ends = (min(facts.start + step * facts.step, facts.end) for step in steps)
    return [fmt.when(at, facts.period) for at in ends]


def _when(course: Course | None, facts: Facts) -> str:
    steps = _brief(course)
    return f" Nearly all of it between {' and '.join(_times(steps, facts))} UTC." if steps else ""


def _mostly(links: Iterable[Link], sender: str, host: str | None = None) -> str:
    """The one program of a host that the loss concerns, if it has several."""
    lost: dict[str, int] = {}
    for link in links:
        if sending_host(link.program) == sender and not link.own and host in (None, link.host):
            lost[link.program] = lost.get(link.program, 0) + link.lost
    worst = max(lost, key=lambda one: lost[one], default="")
    if len(lost) < 2 or not lost[worst] or lost[worst] < MOST * sum(lost.values()):
        return ""
    return f" Nearly all of it was sent by {fmt.plain(worst)}."


def _losses(facts: Facts) -> Iterator[Finding]:
    causes = attribution.attribute(by_sending_host(facts.links))
    if causes.segment is not None:
        yield _segment(causes.segment, facts)
    for one in causes.receivers:
        yield _receiver(one, facts, causes.alone)
    yield from _senders(causes, facts)
    for one in causes.pairs:
        yield _link(one, facts, causes.alone)


def _segment(one: Loss, facts: Facts) -> Finding:
    values = {"cause": one, "times": _when(add_courses(facts.receivers.values()), facts)}
    return write(facts, "segment", _severity(one.rate), (), values, one.rate)


def _receiver(one: Loss, facts: Facts, alone: frozenset[str]) -> Finding:
    host = one.host
    lonely = all(sending_host(link.program) in alone for link in facts.links if link.host == host)
    course = facts.receivers.get(host)
    steps = _brief(course)
    deaf = steps and course and sum(course.lost[slice(*steps)]) >= MOST * sum(course.due[slice(*steps)])
    values = {"host": host, "cause": one, "alone": lonely, "times": _when(course, facts)}
    values["deaf"] = " to ".join(_times(steps, facts)) if steps and deaf else ""
    return write(facts, "receiver", _severity(one.rate), (host,), values, one.rate)


def _senders(causes: Attribution, facts: Facts) -> Iterator[Finding]:
    missed = {one.sender: one for one in causes.senders}
    unsent = {one.sender: one for one in causes.unsent}
    for sender in sorted({*missed, *unsent}):
        one, gone = missed.get(sender), unsent.get(sender)
        rate = max(one.rate if one else 0.0, gone.rate if gone else 0.0)
        values = {"host": sender, "cause": one, "unsent": gone, "mostly": _mostly(facts.links, sender)}
        values["times"] = _when(facts.sending.get(sender), facts)
        yield write(facts, "sender", _severity(rate), (sender,), values, rate)


def _link(one: Loss, facts: Facts, alone: frozenset[str]) -> Finding:
    host, sender = one.host, one.sender
    course = facts.receivers.get(host)
    mine = course is not None and one.lost >= MOST * sum(course.lost)
    values = {"host": host, "sender": sender, "cause": one, "alone": sender in alone}
    values |= {"times": _when(course, facts) if mine else "", "mostly": _mostly(facts.links, sender, host)}
    return write(facts, "link", _severity(one.rate), (host, sender), values, one.rate)


def _late(facts: Facts) -> Iterator[Finding]:
    seen = sum(link.seen for link in facts.links)
    late: dict[str, int] = {}
    for link in facts.links:
        late[link.host] = late.get(link.host, 0) + link.late
    count = sum(late.values())
    if count >= FEW and count >= WORTH * seen:
        worst = sorted((host for host in late if late[host]), key=lambda host: -late[host])
        yield write(facts, "late", LOOK, worst[:3], {"count": count, "seen": seen, "hosts": worst}, count / seen)


def _receives_twice(facts: Facts) -> Iterator[Finding]:
    """Receivers that get everything twice while others do not."""
    sums: dict[str, tuple[int, int]] = {}
    for link in facts.links:
        if not link.own:
            seen, dup = sums.get(link.host, (0, 0))
            sums[link.host] = seen + link.seen, dup + link.dup
    rates = {host: dup / seen for host, (seen, dup) in sums.items() if seen >= THIN}
    usual = median(rates.values()) if len(rates) > 1 else 1.0
    for host, rate in sorted(rates.items()):
        if rate >= TWICE and usual < TWICE / 5:
            yield write(facts, "copies", LOOK, (host,), {"host": host, "rate": rate, "usual": usual}, rate)


def _sends_twice(facts: Facts) -> Iterator[Finding]:
    """Whether sending twice prevents loss: how often both copies arrive shows how many single copies are lost."""
    sums: dict[str, dict[str, Link]] = {}
    for link in facts.links:
        if not link.own and link.seen >= THIN:
            sums.setdefault(link.program, {})[link.host] = link
    programs = sorted(
        program
        for program, links in sums.items()
        if TWICE <= sum(one.dup for one in links.values()) / sum(one.seen for one in links.values()) <= THRICE
    )
    if not programs or any(_receives_twice(facts)):
        return
    rates = dict(_copy_rates(facts, [sums[program] for program in programs]))
    single, now = (median(rate[place] for rate in rates.values()) for place in range(2))
    helped = [host for host, rate in sorted(rates.items()) if rate[0] - rate[1] >= HELPS]
    verdict = (
        "some" if single < WORTH and helped else "none" if single < WORTH else "few" if now > single / 2 else "all"
    )
    worst = max(((host, rates[host]) for host in helped), key=lambda one: one[1], default=None)
    values = {"programs": programs, "helped": helped, "worst": worst, "single": single, "now": now, "verdict": verdict}
    yield write(facts, "twice", NOTE, programs, values, len(programs))


def _copy_rates(facts: Facts, programs: list[dict[str, Link]]) -> Iterator[tuple[str, tuple[float, float]]]:
    """For each host, the loss of single copies and that of messages."""
    for host in facts.hosts:
        links = [links[host] for links in programs if host in links]
        seen, due = sum(one.seen for one in links), sum(one.due for one in links)
        if seen and due:
            again = min(sum(one.dup for one in links) / seen, 1.0)
            yield host, ((1 - again) / (1 + again), sum(one.lost for one in links) / due)


CHECKS: Final[tuple[Callable[[Facts], Iterable[Finding]], ...]] = (_losses, _late, _receives_twice, _sends_twice)
