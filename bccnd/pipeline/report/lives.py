"""Findings about senders that end, begin again, fall silent or skip numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from bccnd.pipeline.report import words
from bccnd.pipeline.report.facts import Epoch, Facts, Silence, sending_host
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding

#: restarts from here on are often
OFTEN: Final = 3
#: senders of one host that fall silent within this time have fallen silent together, in microseconds
TOGETHER: Final = 120 * words.SECOND


def _restarts(facts: Facts) -> Iterator[Finding]:
    counts: dict[str, list[int]] = {}
    for one in facts.epochs:
        if one.cause in ("restart", "masked"):
            row = counts.setdefault(one.src, [0, 0])
            row[0] += 1
            row[1] += one.cause == "masked"
    for src, (restarts, masked) in sorted(counts.items()):
        if restarts < OFTEN:
            continue
        name = words.plain(src)
        unseen = f"; {words.some(masked, 'restart')} went unnoticed by the daemons" if masked else ""
        yield Finding(
            "restarts",
            LOOK,
            (src,),
            f"{name} restarts often",
            f"{restarts} times in {words.duration(facts.period)}, about every "
            f"{words.duration(facts.period // restarts)}{unseen}.",
            "It crashes, or somebody or something stops and starts it.",
            f"Look at its log and at what starts it on {words.plain(sending_host(src))}.",
            restarts,
        )


def _jumps(facts: Facts) -> Iterator[Finding]:
    found: dict[str, list[Epoch]] = {}
    for one in facts.epochs:
        if one.skipped:
            found.setdefault(one.src, []).append(one)
    for src, jumps in sorted(found.items()):
        name, most = words.plain(src), max(jumps, key=lambda one: one.skipped)
        more = f"; {words.some(len(jumps), 'jump')} in all" if len(jumps) > 1 else ""
        yield Finding(
            "jump",
            LOOK,
            (src,),
            f"{name} skipped {words.some(sum(one.skipped for one in jumps), 'number')}",
            f"{words.some(most.skipped, 'number')} at {words.when(most.first, facts.period)} UTC, which no host "
            f"received{more}. No figure of loss has them: it sends too slowly for so many, or no host was recording.",
            "It began anew with a higher number, or as many of its messages were lost.",
            f"See whether it was started then on {words.plain(sending_host(src))}; if not, they were lost.",
            float(sum(one.skipped for one in jumps)),
        )


def _silences(facts: Facts) -> Iterator[Finding]:
    whole = [one for one in facts.silences if one.host is None]
    yield from _down(facts, [one for one in whole if one.kind == "host_down"])
    for one in whole:
        if one.basis == "heartbeat" and one.kind in ("open", "gap"):
            yield _silent(facts, one)
    left = sorted({one.src for one in whole if one.kind == "open" and one.basis != "heartbeat"})
    if left:
        names = words.listing([words.plain(one) for one in left])
        yield Finding(
            "left",
            NOTE,
            tuple(left),
            f"{words.some(len(left), 'sender')} without heartbeats fell silent",
            f"{names}: had sent all the time, and then nothing more until the end.",
            "They have ended, or have nothing to say; without heartbeats that cannot be told.",
            "Turn heartbeats on (heartbeat.interval) for those that should never be silent.",
            len(left),
        )


def _silent(facts: Facts, one: Silence) -> Finding:
    name = words.plain(one.src)
    at = words.when(one.start, facts.period)
    if one.end is None:
        lasted = words.duration(max(facts.end - one.start, 0))
        return Finding(
            "died",
            URGENT,
            (one.src,),
            f"{name} died at {at}",
            f"Its last sign of life was at {at} UTC; it had sent heartbeats, and nothing came in the {lasted} after.",
            "The program or its host has ended, or its network is cut off.",
            f"See whether it runs on {words.plain(sending_host(one.src))}.",
            float(facts.end - one.start),
        )
    return Finding(
        "silent",
        LOOK,
        (one.src,),
        f"{name} was silent for {words.duration(one.end - one.start)}",
        f"From {at} to {words.when(one.end, facts.period)} UTC nobody heard it, though it sends heartbeats.",
        "It was stopped or hung, or its network was cut off.",
        f"Look at its log on {words.plain(sending_host(one.src))} for that time.",
        float(one.end - one.start),
    )


def _down(facts: Facts, silences: Sequence[Silence]) -> Iterator[Finding]:
    """All senders of a host at once, told once for each time."""
    rest = sorted(silences, key=lambda one: (sending_host(one.src), one.start))
    while rest:
        first = rest[0]
        group = [
            one
            for one in rest
            if sending_host(one.src) == sending_host(first.src) and one.start - first.start <= TOGETHER
        ]
        rest = [one for one in rest if one not in group]
        host = sending_host(first.src)
        name, senders = words.plain(host), words.some(len({one.src for one in group}), "sender")
        at = words.when(first.start, facts.period)
        ends = [one.end for one in group if one.end is not None]
        if ends and len(ends) == len(group):
            end = max(ends)
            title = f"{name} was down for {words.duration(end - first.start)}"
            evidence = f"Its {senders} fell silent at {at} UTC and came back by {words.when(end, facts.period)} UTC."
        else:
            title = f"{name} went down at {at}"
            evidence = f"Its {senders} fell silent at {at} UTC, and not all came back."
        yield Finding(
            "host_down",
            URGENT if not ends else LOOK,
            (host,),
            title,
            evidence,
            "The host or its daemon stopped, or its network was cut off.",
            f"See whether {name} is up and reachable, and since when.",
            len(group),
        )


LOOKS: Final[tuple[Callable[[Facts], Iterable[Finding]], ...]] = (_restarts, _jumps, _silences)
