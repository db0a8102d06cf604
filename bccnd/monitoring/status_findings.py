"""What the status page says needs attention: the findings, and the sentence about the overall state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bccnd.log.handlers import printable
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.status_model import DropRow, Finding, GatewayRow

#: seconds after its last increase for which a drop counts as ongoing
ONGOING: Final = 300.0
#: seconds after its last increase for which a drop is a finding
RECENT: Final = 3600.0
#: seconds after the start within which a gateway may be down
GATEWAY_START_TIME: Final = 30.0

#: findings named in the summary
MAX_NAMED: Final = 6

#: states, best first
WELL: Final = "well"
OVER: Final = "over"
ATTENTION: Final = "attention"


def find_problems(
    daemon: DaemonState,
    uptime: float,
    drops: Iterable[DropRow],
    gateways: Iterable[GatewayRow],
    wall: float,
    *,
    died_recently: bool,
    died_now: bool,
) -> Iterator[Finding]:
    """Find what the operator should look at; ``died_recently`` and ``died_now`` are about sources within `RECENT` and
    `ONGOING`."""
    only = printable(daemon.segments[0].options.name) if len(daemon.segments) == 1 else ""
    for one in drops:
        if one.serious and one.last is not None and wall - one.last < RECENT:
            where = f" on {one.where}" if one.where and one.where != only else ""
            yield Finding(f"{one.name}{where}", "drops", one.now)
    for segment in daemon.segments:
        if not segment.up:
            yield Finding(f"interface {printable(segment.interface)} is gone", "segments", True)
    for gateway in gateways:
        if not gateway.up and uptime > GATEWAY_START_TIME:
            yield Finding(f"gateway {gateway.name} is down", "gateways", True)
    if daemon.liveness.silent:
        yield Finding(f"{_are(daemon.liveness.silent, 'source')} silent", "sources", True)
    if died_recently:
        yield Finding("sources died", "sources", died_now)
    if daemon.refused:
        yield Finding("the last reload was refused", "events", True)


def _are(number: int, noun: str) -> str:
    return f"{number:,} {noun} is" if number == 1 else f"{number:,} {noun}s are"


def state_of(findings: list[Finding]) -> str:
    """Return the overall state."""
    if any(one.now for one in findings):
        return ATTENTION
    return OVER if findings else WELL


def summarize(findings: list[Finding]) -> list[str | Finding]:
    """Return a sentence about the overall state, in parts: text, and findings to link."""
    present = [one for one in findings if one.now]
    past = [one for one in findings if not one.now]
    if not findings:
        return ["All is well."]
    if not present:
        return ["All is well now. Within the last hour: ", *_listed(past), "."]
    things = "1 thing needs" if len(present) == 1 else f"{len(present)} things need"
    also = [" Within the last hour also: ", *_listed(past), "."] if past else []
    return [f"{things} attention: ", *_listed(present), ".", *also]


def _listed(findings: list[Finding]) -> list[str | Finding]:
    parts: list[str | Finding] = []
    for one in findings[:MAX_NAMED]:
        parts += [", ", one] if parts else [one]
    if len(findings) > MAX_NAMED:
        parts.append(f" and {len(findings) - MAX_NAMED} more")
    return parts
