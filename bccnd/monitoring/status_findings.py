"""Finds what needs the attention of an operator, and the overall state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bccnd.snapshot import DropState, Problem, Snapshot

#: seconds after its last increase for which a drop counts as ongoing
ONGOING: Final = 300.0
#: seconds after its last increase for which a drop is a finding
RECENT: Final = 3600.0
#: seconds after the start within which a gateway may be down
GATEWAY_START_TIME: Final = 30.0

#: states, best first
WELL: Final = "well"
OVER: Final = "over"
ATTENTION: Final = "attention"


def find_problems(
    snapshot: Snapshot, drops: Iterable[DropState], last_death: float | None, now: float
) -> Iterator[Problem]:
    """Yield findings; ``last_death`` is when a source was last declared dead, both times are monotonic."""
    segments = [one for one in snapshot.segments if one.address]
    only = segments[0].name if len(segments) == 1 else ""
    for one in drops:
        if one.serious and one.last is not None and snapshot.at - one.last < RECENT:
            where = f" on {one.where}" if one.where and one.where != only else ""
            yield Problem(f"{one.name}{where}", "drops", one.now)
    for segment in segments:
        if not segment.up:
            yield Problem(f"interface {segment.interface} is gone", "segments", True)
    for gateway in snapshot.gateways:
        if not gateway.up and snapshot.at - snapshot.started > GATEWAY_START_TIME:
            yield Problem(f"gateway {gateway.gateway} is down", "gateways", True)
    if silent := snapshot.sources.silent:
        yield Problem(f"{silent:,} source{' is' if silent == 1 else 's are'} silent", "sources", True)
    if last_death is not None and now - last_death < RECENT:
        yield Problem("sources died", "sources", now - last_death < ONGOING)
    if snapshot.refused:
        yield Problem("the last reload was refused", "events", True)


def state_of(findings: list[Problem]) -> str:
    """Return the overall state."""
    if any(one.now for one in findings):
        return ATTENTION
    return OVER if findings else WELL
