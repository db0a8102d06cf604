"""The daemon at a moment, as plain data, from which metrics, pages, listings and commands are made.

Times are Unix times in seconds. `to_json` encodes every object of this module by the names of its fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class SegmentState:
    """A segment, or with an empty ``address`` all links of a gateway. ``kernel_drops`` is counted by the kernel."""

    name: str
    address: str
    interface: str
    up: bool
    received: int
    verdicts: dict[str, int]
    kernel_drops: int
    sent: int
    #: sends that failed, by the errno's name
    errors: dict[str, int]
    reopened: int


@dataclass(frozen=True)
class SourceCounts:
    """Numbers of sources. ``alive`` counts those that sent a datagram within the last ``within`` seconds."""

    tracked: int = 0
    alive: int = 0
    within: float = 0.0
    silent: int = 0
    dead: int = 0
    deaths: int = 0
    restarts: int = 0
    jumps: int = 0
    missing: int = 0
    lost: int = 0


@dataclass(frozen=True)
class BusCounts:
    """Clients and messages of the local bus; ``held`` are delays of publishers, ``dropped`` messages, by reason."""

    clients: int = 0
    taken_over: int = 0
    subscriptions: int = 0
    queue_bytes: int = 0
    #: a client's queue is full at so many messages or bytes
    queue_limits: tuple[int, int] = (0, 0)
    deliveries: int = 0
    published: int = 0
    held: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FleetCounts:
    """Reports of hosts, and messages arrived and lost by direction."""

    hosts: int = 0
    silent: int = 0
    sent: int = 0
    received: int = 0
    messages: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ChannelGroup:
    """A configured group of channels."""

    name: str
    messages: int
    bytes: int


@dataclass(frozen=True)
class Latency:
    """Seconds from the kernel to the clients' sockets: counts by bucket, and their sum."""

    buckets: list[int] = field(default_factory=list)
    sum: float = 0.0


@dataclass
class GatewayPeerState:
    """A connection of a gateway. ``peer`` is an address, ``name`` an id or URL, ``since`` in seconds of the wall clock;
    numbers are of messages, except ``queued``, which is of bytes."""

    peer: str
    name: str = ""
    since: float = 0.0
    received: int = 0
    sent: int = 0
    dropped: int = 0
    queued: int = 0


@dataclass
class GatewayCounts:
    """Figures that a gateway reports, which only grow while its process lives. ``connects`` counts connections made,
    and those that were refused or ended for a reason, which is in ``dropped`` too."""

    gateway: str
    peers: list[GatewayPeerState] = field(default_factory=list, metadata={"rows": GatewayPeerState})
    received: int = 0
    received_bytes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    connects: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    peers_connected: int = 0
    #: when its process started, in seconds of the monotonic clock; 0 if its version does not report it
    started: float = 0.0


@dataclass
class GatewayState(GatewayCounts):
    """A gateway process, as it last reported; ``pid`` is 0 if it has never reported."""

    up: bool = False
    pid: int = 0
    starts: int = 0


@dataclass(frozen=True)
class DropFamily:
    """Drops that one metric counts, by name; ``where`` is a segment or a gateway, or empty."""

    family: str
    where: str
    counts: dict[str, int]


@dataclass(frozen=True)
class Snapshot:
    """Counters and states of the daemon, without what it knows of single clients and sources."""

    version: str = ""
    host: str = ""
    identity: str = ""
    pid: int = 0
    started: float = 0.0
    at: float = 0.0
    #: why the last reload was refused; empty if it was applied
    refused: str = ""
    config_reloads: dict[str, int] = field(default_factory=dict)
    segments: list[SegmentState] = field(default_factory=list)
    sources: SourceCounts = SourceCounts()
    bus: BusCounts = BusCounts()
    gateways: list[GatewayState] = field(default_factory=list)
    fleet: FleetCounts = FleetCounts()
    groups: list[ChannelGroup] = field(default_factory=list)
    #: datagrams verified with each key, by its fingerprint
    keys: dict[str, int] = field(default_factory=dict)
    forward: Latency = Latency()
    #: seconds for which the event loop was stalled, and its longest stall within the last one to two minutes
    stalled: float = 0.0
    longest_stall: float = 0.0
    drops: list[DropFamily] = field(default_factory=list)


# -- rows of listings


@dataclass(frozen=True)
class DaemonSummary:
    """The daemon in one row: figures are sums over its segments, without links."""

    version: str = ""
    host: str = ""
    identity: str = ""
    pid: int = 0
    started: float = 0.0
    clients: int = 0
    subscriptions: int = 0
    sources: int = 0
    segments: list[str] = field(default_factory=list)
    received: int = 0
    sent: int = 0
    kernel_drops: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    lost: int = 0
    published: int = 0
    deliveries: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    queue_bytes: int = 0


@dataclass(frozen=True)
class ClientState:
    """A client. ``waits`` if it publishes faster than it may; ``patterns`` are the first of its ``subscriptions``, and
    are not on the status page, which anyone on this host can read."""

    identity: str
    program: str
    pid: int
    uid: int
    since: float
    dialect: str
    subscriptions: int
    patterns: list[str]
    published: int
    waits: bool
    queued: int
    queued_bytes: int
    lost: int


@dataclass(frozen=True)
class SourceState:
    """A source; ``state`` is empty if it sends no heartbeats. Of one that is no longer tracked, the rest is None.
    ``key`` is the fingerprint of the key that signed its latest datagram."""

    src: str
    state: str
    silent_seconds: float
    last_seq: int | None = None
    epoch: int | None = None
    missing: int | None = None
    key: str | None = None


# -- the status page


@dataclass(frozen=True)
class Problem:
    """A problem: in a few words, with the section of the page that has details; ``now`` if it is ongoing."""

    text: str
    section: str
    now: bool


@dataclass(frozen=True)
class Chart:
    """A counter over the last hour; ``values`` are rates per second, oldest first, None where unknown."""

    name: str
    total: int
    values: list[float | None]


@dataclass(frozen=True)
class DropState:
    """Losses or drops under one name, with their place and remedy. ``first``, ``since`` and ``last`` are None for times
    before the first sample; ``key`` is that of `HostStatus.rates`."""

    name: str
    kind: str
    metric: str
    where: str
    times: int
    key: str
    first: float | None
    since: float | None
    last: float | None
    serious: bool
    now: bool
    means: str
    remedy: str


@dataclass(frozen=True)
class SourceLoss:
    """A source on the status page; ``lost`` is a lower bound of its losses since the start, ``lost_last`` the time of
    the last one."""

    src: str
    state: str
    heard: float | None
    missing: int
    lost: int
    lost_last: float | None


@dataclass(frozen=True)
class ChannelTraffic:
    """A channel, with its messages within the last minute."""

    chan: str
    rate: float
    messages: int
    receivers: int


@dataclass(frozen=True)
class LogEvent:
    """A log line."""

    when: float
    level: str
    event: str
    text: str
    remedy: str


@dataclass(frozen=True)
class HostStatus:
    """A snapshot with its recent history, and the clients, sources and channels that are worth a look. ``more_*`` is
    the number of rows left out of a list."""

    now: Snapshot
    state: str
    findings: list[Problem]
    #: names of the verdicts with which a datagram is delivered
    delivered: list[str]
    #: per second, over the last ten seconds, by counter; those at zero are left out
    rates: dict[str, float]
    charts: list[Chart]
    drops: list[DropState]
    sources: list[SourceLoss]
    more_sources: int
    channels: list[ChannelTraffic]
    more_channels: int
    clients: list[ClientState]
    events: list[LogEvent]


def to_json(value: object) -> str:
    """Encode an object of this module, or rows and dictionaries of them."""
    return json.dumps(value, default=vars, separators=(",", ":"))


def read_rows(kind: type[T], rows: Iterable[Mapping[str, Any]]) -> list[T]:
    """Read rows of a listing; fields that only a newer daemon has are ignored. Raises TypeError."""
    inner = {one.name: one.metadata.get("rows") for one in fields(kind)}  # type: ignore[arg-type]

    def read(name: str, value: Any) -> Any:
        row = inner[name]
        return value if row is None else read_rows(row, value)

    return [kind(**{name: read(name, value) for name, value in row.items() if name in inner}) for row in rows]
