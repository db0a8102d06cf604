"""The data of the status page: rows and totals.

Invariant: lists have a bounded length, and text is printable. Times are Unix times in seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Finding(NamedTuple):
    """A problem: in a few words, with the section of the page that has details; ``now`` if it is ongoing."""

    text: str
    section: str
    now: bool


class Chart(NamedTuple):
    """A counter over the last hour; ``values`` are rates per second, oldest first, None where unknown."""

    name: str
    title: str
    unit: str
    total: int
    rate: float
    values: list[float | None]


class DropRow(NamedTuple):
    """Losses or drops under one name. ``first``, ``since`` and ``last`` are None for times before the first sample;
    ``metric`` is the name of the Prometheus series."""

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


class SegmentRow(NamedTuple):
    """One segment, or one link. Rates are averages over ten seconds; the kernel counts ``kernel_drops``."""

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


class VerdictRow(NamedTuple):
    """The datagrams of one segment with one verdict."""

    name: str
    segment: str
    accepted: bool
    times: int
    rate: float
    share: float


class SourceTotals(NamedTuple):
    """Numbers of sources. ``alive`` counts those that sent a datagram within the last ``within`` seconds."""

    tracked: int
    alive: int
    within: float
    silent: int
    dead: int
    restarts: int
    missing: int
    lost: int


class SourceRow(NamedTuple):
    """One source; ``lost`` is a lower bound of its losses since the start."""

    src: str
    state: str
    heard: float | None
    missing: int
    lost: int
    lost_since: float | None
    lost_last: float | None


class ChannelRow(NamedTuple):
    """One channel, with its messages within the last minute."""

    chan: str
    rate: float
    messages: int
    receivers: int


class ClientRow(NamedTuple):
    """One client; ``fill`` is how full its queue is, from 0 to 1."""

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


class GatewayRow(NamedTuple):
    """One gateway process, as it last reported."""

    name: str
    up: bool
    pid: int
    peers: int
    received: int
    sent: int
    dropped: int
    connects: int
    starts: int


class GatewayPeerRow(NamedTuple):
    """One connection of a gateway."""

    gateway: str
    peer: str
    name: str
    since: float
    received: int
    sent: int
    dropped: int
    queued: int


class EventRow(NamedTuple):
    """One log line."""

    when: float
    level: str
    event: str
    text: str
    remedy: str


class Status(NamedTuple):
    """The whole page, as of ``at``. ``more_*`` is the number of rows left out of a list."""

    host: str
    version: str
    pid: int
    started: float
    at: float
    state: str
    findings: list[Finding]
    charts: list[Chart]
    drops: list[DropRow]
    segments: list[SegmentRow]
    verdicts: list[VerdictRow]
    source_counts: SourceTotals
    sources: list[SourceRow]
    more_sources: int
    channels: list[ChannelRow]
    more_channels: int
    clients: list[ClientRow]
    more_clients: int
    deliveries: int
    deliveries_rate: float
    published: int
    published_rate: float
    queue_bytes: int
    subscriptions: int
    gateways: list[GatewayRow]
    peers: list[GatewayPeerRow]
    more_peers: int
    events: list[EventRow]


def to_json(value: Any) -> Any:
    """Convert rows to dictionaries, for `json.dumps`."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(field) for name, field in zip(value._fields, value, strict=True)}
    return [to_json(each) for each in value] if isinstance(value, list) else value
