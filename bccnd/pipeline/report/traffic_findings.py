"""Findings about refused datagrams, busy channels and clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Final

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.attribution import FEW
from bccnd.pipeline.report.facts import Clock, Facts
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding, write

#: clocks that differ by less are right; from the second on, times of two hosts cannot be compared; microseconds
CLOCK: Final = 100_000
CLOCK_BAD: Final = 1_000_000
#: messages in a minute below which no channel floods, and how many times those of a usual channel
FLOOD: Final = 600
FLOOD_TIMES: Final = 10
#: channels that are no measure of usual traffic
HEARTBEAT: Final = "heartbeat/"


#: verdict -> kind, severity, least number of datagrams
_REFUSED: Final = {
    "integrity_failed": ("forged", URGENT, 1),
    "replayed": ("forged", URGENT, FEW),
    "integrity_missing": ("forged", LOOK, FEW),
    "integrity_unknown": ("forged", LOOK, FEW),
}


def _refusals(facts: Facts) -> Iterator[Finding]:
    for one in facts.refusals:
        texts = one.verdict if one.verdict in _REFUSED else "unknown"
        kind, severity, least = _REFUSED.get(texts, ("unknown", NOTE, FEW))
        if one.verdict != "internal_error" and one.datagrams >= least:
            values = {"one": one, "peer": one.peer or "an unknown address"}
            yield write(facts, kind, severity, (one.peer,), values, one.datagrams, texts=texts)


def _floods(facts: Facts) -> Iterator[Finding]:
    channels = [one for one in facts.channels if not one.name.startswith(HEARTBEAT)]
    minutes = max(facts.period / fmt.MINUTE, 1)
    for one in channels if len(channels) > 3 else ():
        usual = median(other.peak for other in channels if other is not one)
        alone = one.messages >= facts.messages / 2 or one.peak >= one.messages / minutes * 5
        if one.peak >= max(FLOOD, FLOOD_TIMES * usual) and alone:
            yield write(facts, "flood", LOOK, (one.name,), {"one": one, "usual": usual}, one.peak)


def _clocks(facts: Facts) -> Iterator[Finding]:
    groups: dict[str, list[Clock]] = {}
    for one in facts.clocks:
        groups.setdefault(one.against, []).append(one)
    for against, group in groups.items():
        offsets = {against: 0, **{one.host: one.middle for one in group}}
        middle = round(median(offsets.values())) if len(offsets) > 2 else 0
        for host, offset in sorted(offsets.items()):
            off = offset - middle
            if abs(off) >= CLOCK:
                values = {"host": host, "off": off, "others": len(offsets) - 1}
                yield write(facts, "clock", LOOK if abs(off) >= CLOCK_BAD else NOTE, (host,), values, abs(off))


CHECKS: Final[tuple[Callable[[Facts], Iterable[Finding]], ...]] = (_refusals, _floods, _clocks)
