"""Findings about messages that were lost, late, or received twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any, Final

from bccnd.pipeline.report import attribution
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.attribution import FEW, THIN, WORTH, Loss
from bccnd.pipeline.report.facts import Course, Facts, Link, add_courses, add_links, by_sending_host, sending_host
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


def _times(steps: tuple[int, int], facts: Facts, word: str) -> str:
    ends = (min(facts.start + step * facts.step, facts.end) for step in steps)
    return f" {word} ".join(fmt.when(at, facts.period) for at in ends)


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
    if causes.segment:
        yield _loss(facts, "segment", causes.segment, add_courses(facts.receivers.values()))
    for one in causes.receivers:
        course = facts.receivers.get(one.host)
        alone = all(sending_host(link.program) in causes.alone for link in facts.links if link.host == one.host)
        yield _loss(facts, "receiver", one, course, alone=alone, outage=_outage(course, facts))
    missed, unsent = ({one.sender: one for one in each} for each in (causes.senders, causes.unsent))
    for sender in sorted({*missed, *unsent}):
        one = max((each[sender] for each in (missed, unsent) if sender in each), key=lambda each: each.rate)
        both = {"missed": missed.get(sender), "unsent": unsent.get(sender), "mostly": _mostly(facts.links, sender)}
        yield _loss(facts, "sender", one, facts.sending.get(sender), **both)
    for one in causes.pairs:
        course = facts.receivers.get(one.host)
        mine = course is not None and one.lost >= MOST * sum(course.lost)
        mostly = _mostly(facts.links, one.sender, one.host)
        yield _loss(facts, "link", one, course if mine else None, alone=one.sender in causes.alone, mostly=mostly)


def _loss(facts: Facts, kind: str, one: Loss, course: Course | None, **values: Any) -> Finding:
    steps = _brief(course)
    values["times"] = f" Nearly all of it between {_times(steps, facts, 'and')} UTC." if steps else ""
    values |= {"cause": one, "host": one.host, "sender": one.sender}
    about = [name for name in (one.host, one.sender) if name]
    return write(facts, kind, URGENT if one.rate >= HEAVY else LOOK, about, values, one.rate)


def _outage(course: Course | None, facts: Facts) -> str:
    """The short time in which a host received almost nothing, if that is when it lost most."""
    steps = _brief(course)
    if not steps or not course or sum(course.lost[slice(*steps)]) < MOST * sum(course.due[slice(*steps)]):
        return ""
    return _times(steps, facts, "to")


def _by_host(facts: Facts) -> dict[str, Link]:
    return {one.host: one for one in add_links(link._replace(program="") for link in facts.links if not link.own)}


def _late(facts: Facts) -> Iterator[Finding]:
    hosts = _by_host(facts)
    seen, late = (sum(getattr(one, name) for one in hosts.values()) for name in ("seen", "late"))
    if late >= FEW and late >= WORTH * seen:
        worst = sorted((host for host in hosts if hosts[host].late), key=lambda host: -hosts[host].late)
        yield write(facts, "late", LOOK, worst[:3], {"count": late, "seen": seen, "hosts": worst}, late / seen)


def _receives_twice(facts: Facts) -> Iterator[Finding]:
    """Receivers that get everything twice while others do not."""
    rates = {host: one.dup / one.seen for host, one in _by_host(facts).items() if one.seen >= THIN}
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
