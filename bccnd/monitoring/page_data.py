"""What the status page shows, as plain data.

Law: whatever a list could grow to, so much of it is taken; nothing here walks through all sources or sorts all that
there is. Text that strangers choose is made printable here; times are those of the wall clock, in seconds.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

#: seconds since it rose last within which something is taken to go on
NOW: Final = 300.0
#: and within which it is still told of
LATELY: Final = 3600.0

#: findings that the sentence names
NAMED: Final = 6

#: states, from the best to the worst
WELL: Final = "well"
OVER: Final = "over"
ATTENTION: Final = "attention"


class Finding(NamedTuple):
    """Something that somebody should look at: in a few words, the section of the page that has more, and whether it
    goes on."""

    text: str
    section: str
    now: bool


class Chart(NamedTuple):
    """A counter over the last hour; ``values`` are per second, the present last, None where nothing is known."""

    name: str
    title: str
    unit: str
    total: int
    rate: float
    values: list[float | None]


class Dropped(NamedTuple):
    """What was lost or thrown away under one name. ``first``, ``since`` and ``last`` are None where that was before
    anybody looked; ``metric`` is what Prometheus knows it as."""

    name: str
    kind: str
    metric: str
    where: str
    times: int
    rate: float
    first: float | None
    since: float | None
    last: float | None
    serious: bool
    now: bool
    means: str
    remedy: str


class Segment(NamedTuple):
    """Rates are over the last ten seconds; ``kernel_drops`` is the kernel's own count."""

    name: str
    address: str
    interface: str
    received: int
    received_rate: float
    accepted: int
    accepted_rate: float
    refused: int
    refused_rate: float
    kernel_drops: int
    sent: int
    sent_rate: float
    send_errors: int


class Verdict(NamedTuple):
    """What became of datagrams of one segment."""

    name: str
    segment: str
    accepted: bool
    times: int
    rate: float
    share: float


class Sources(NamedTuple):
    """All sources, in numbers; ``within`` are the seconds in which one that is alive was heard."""

    tracked: int
    alive: int
    within: float
    silent: int
    dead: int
    restarts: int
    missing: int
    lost: int


class Source(NamedTuple):
    """One source; ``lost`` is at least what was lost of it since the start."""

    src: str
    state: str
    heard: float | None
    missing: int
    lost: int
    lost_since: float | None
    lost_last: float | None


class Channel(NamedTuple):
    chan: str
    rate: float
    messages: int
    receivers: int


class Client(NamedTuple):
    """A program of this host; ``fill`` is how full its queue is, from 0 to 1."""

    identity: str
    program: str
    uid: int
    pid: int
    queue_messages: int
    queue_bytes: int
    fill: float
    lost: int
    published: int
    subscriptions: int
    since: float


class Gateway(NamedTuple):
    name: str
    up: bool
    pid: int
    peers: int
    received: int
    sent: int
    dropped: int
    connects: int
    starts: int


class GatewayPeer(NamedTuple):
    gateway: str
    peer: str
    name: str
    since: float
    received: int
    sent: int
    dropped: int
    queued: int


class Event(NamedTuple):
    when: float
    level: str
    event: str
    text: str
    remedy: str


class Facts(NamedTuple):
    """All that is shown, at ``at``. Of each list the number of those left out stands beside it."""

    host: str
    version: str
    pid: int
    started: float
    at: float
    state: str
    findings: list[Finding]
    charts: list[Chart]
    drops: list[Dropped]
    segments: list[Segment]
    verdicts: list[Verdict]
    source_counts: Sources
    sources: list[Source]
    more_sources: int
    channels: list[Channel]
    more_channels: int
    clients: list[Client]
    more_clients: int
    deliveries: int
    deliveries_rate: float
    published: int
    published_rate: float
    queue_bytes: int
    subscriptions: int
    gateways: list[Gateway]
    peers: list[GatewayPeer]
    more_peers: int
    events: list[Event]


def plain(facts: Any) -> Any:
    """As what JSON knows: objects by name, lists, text and numbers."""
    if isinstance(facts, tuple) and hasattr(facts, "_fields"):
        return {name: plain(value) for name, value in zip(facts._fields, facts, strict=True)}
    return [plain(each) for each in facts] if isinstance(facts, list) else facts


def state_of(findings: list[Finding]) -> str:
    """How things are, by what was found."""
    if any(one.now for one in findings):
        return ATTENTION
    return OVER if findings else WELL


def sentence(findings: list[Finding]) -> list[str | Finding]:
    """How things are, in parts: words, and what they are about."""
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
    for one in findings[:NAMED]:
        parts += [", ", one] if parts else [one]
    if len(findings) > NAMED:
        parts.append(f" and {len(findings) - NAMED} more")
    return parts
