"""The figures of `bccn top`, from two snapshots of the daemon and the messages counted between them.

No terminal, socket or clock is used here. What is not known is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bccnd.cli.tap import KINDS

#: names counted in one interval; those beyond are counted together
MAX_NAMES: Final = 10_000
#: rows of each table
MAX_ROWS: Final = 100
OTHERS: Final = "(others)"
#: sender of messages under keys that are no legal channels
NAMELESS: Final = "(no sender)"

_COUNTERS: Final = ("received", "sent", "published", "deliveries")
_LOSSES: Final = ("missing", "lost", "kernel_drops")


@dataclass
class TrafficCount:
    """The messages of an interval: number and bytes by name; ``lost`` are those that did not reach us."""

    messages: int = 0
    lost: int = 0
    channels: dict[str, list[int]] = field(default_factory=dict)
    senders: dict[str, list[int]] = field(default_factory=dict)

    def add(self, chan: str, src: str, size: int) -> None:
        self.messages += 1
        _count(self.channels, chan, size)
        _count(self.senders, src or NAMELESS, size)


def _count(table: dict[str, list[int]], name: str, size: int) -> None:
    found = table.get(name)
    if found is None:
        name = name if len(table) < MAX_NAMES else OTHERS
        found = table.setdefault(name, [0, 0])
    found[0] += 1
    found[1] += size


@dataclass(frozen=True)
class Snapshot:
    """The listings of the daemon at a time. ``sources`` may be older, as there may be many."""

    at: float
    daemon: Mapping[str, Any]
    clients: tuple[Mapping[str, Any], ...] = ()
    sources: tuple[Mapping[str, Any], ...] = ()
    gateways: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Busy:
    """A channel or a sender, with its rates per second."""

    name: str
    messages: float
    bytes: float


@dataclass(frozen=True)
class ClientRow:
    """``lost_now`` is what was lost in the interval; ``published`` is a rate per second, None in the first snapshot."""

    identity: str
    queued: int
    queued_bytes: int
    lost: int
    lost_now: int
    published: float | None
    waits: bool
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class SourceRow:
    """A source that is not as it should be."""

    src: str
    state: str
    silent_seconds: float
    missing: int


@dataclass(frozen=True)
class GatewayRow:
    """A gateway, or one of its peers: ``name`` is that of a gateway or an address; ``received`` and ``sent`` are rates
    per second, None in the first snapshot. ``peers`` is None for a peer."""

    name: str
    up: bool
    peers: int | None
    received: float | None
    sent: float | None
    dropped: int
    dropped_now: int


@dataclass(frozen=True)
class Figures:
    """All that is shown. ``seconds`` is the length of the interval, None if there is no earlier snapshot of the same
    daemon; ``rates`` are per second and empty then, ``new`` is what was lost in the interval."""

    version: str
    host: str
    identity: str
    pid: int
    started: float
    segments: tuple[str, ...]
    seconds: float | None
    rates: dict[str, float]
    totals: dict[str, int]
    losses: dict[str, int]
    new: dict[str, int]
    dropped: dict[str, int]
    dropped_now: dict[str, int]
    queue_bytes: int
    clients: int
    subscriptions: int
    sources: int
    states: dict[str, int]
    #: seconds in which messages were counted, their number, and the number of those lost as we were too slow
    heard_seconds: float
    heard: int
    unheard: int
    busy_channels: tuple[Busy, ...]
    busy_senders: tuple[Busy, ...]
    worst_clients: tuple[ClientRow, ...]
    troubled_sources: tuple[SourceRow, ...]
    gateways: tuple[GatewayRow, ...]
    peers: tuple[GatewayRow, ...]


def restarted(before: Snapshot | None, after: Snapshot) -> bool:
    """Whether two snapshots are of two daemons."""
    return before is not None and any(before.daemon[name] != after.daemon[name] for name in ("pid", "started"))


def figures(before: Snapshot | None, after: Snapshot, traffic: TrafficCount, heard_seconds: float) -> Figures:
    """The figures of two snapshots; ``before`` is None for the first one."""
    if restarted(before, after):
        before = None
    now = after.daemon
    was: Mapping[str, Any] = before.daemon if before is not None else now
    seconds = after.at - before.at if before is not None and after.at > before.at else None
    totals = {name: int(now[name]) for name in _COUNTERS} | _by_kind(now["verdicts"])
    earlier = {name: int(was[name]) for name in _COUNTERS} | _by_kind(was["verdicts"])
    rates = {} if seconds is None else {name: round((totals[name] - earlier[name]) / seconds, 3) for name in totals}
    return Figures(
        version=str(now["version"]),
        host=str(now["host"]),
        identity=str(now["identity"]),
        pid=int(now["pid"]),
        started=float(now["started"]),
        segments=tuple(map(str, now["segments"])),
        seconds=None if seconds is None else round(seconds, 3),
        rates=rates,
        totals=totals,
        losses={name: int(now[name]) for name in _LOSSES},
        new={name: max(0, int(now[name]) - int(was[name])) for name in _LOSSES},
        dropped=dict(now["dropped"]),
        dropped_now={
            reason: count - was["dropped"].get(reason, 0)
            for reason, count in now["dropped"].items()
            if count > was["dropped"].get(reason, 0)
        },
        queue_bytes=int(now["queue_bytes"]),
        clients=int(now["clients"]),
        subscriptions=int(now["subscriptions"]),
        sources=int(now["sources"]),
        states=_states(after.sources),
        heard_seconds=round(heard_seconds, 3),
        heard=traffic.messages,
        unheard=traffic.lost,
        busy_channels=_busiest(traffic.channels, heard_seconds),
        busy_senders=_busiest(traffic.senders, heard_seconds),
        worst_clients=_worst(before, after, seconds),
        troubled_sources=_troubled(after.sources),
        gateways=_gateways(before, after, seconds),
        peers=_peers(before, after, seconds),
    )


def _by_kind(verdicts: Mapping[str, int]) -> dict[str, int]:
    return {kind: sum(verdicts.get(name, 0) for name in names) for kind, names in KINDS.items()}


def _states(sources: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    states = {"alive": 0, "silent": 0, "dead": 0}
    for source in sources:
        if source["state"] in states:
            states[source["state"]] += 1
    return states


def _busiest(table: Mapping[str, list[int]], seconds: float) -> tuple[Busy, ...]:
    if seconds <= 0:
        return ()
    ranked = sorted(table.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))[:MAX_ROWS]
    return tuple(Busy(name, round(count / seconds, 3), round(size / seconds, 3)) for name, (count, size) in ranked)


def _worst(before: Snapshot | None, after: Snapshot, seconds: float | None) -> tuple[ClientRow, ...]:
    """Clients: first those that lose now, then those with a queue, then those that have lost, then the busiest."""
    known = {_key(client): client for client in before.clients} if before is not None else {}
    rows = []
    for client in after.clients:
        was = known.get(_key(client))
        published = None if was is None or seconds is None else (client["published"] - was["published"]) / seconds
        rows.append(
            ClientRow(
                identity=str(client["identity"]),
                queued=int(client["queued"]),
                queued_bytes=int(client["queued_bytes"]),
                lost=int(client["lost"]),
                lost_now=max(0, int(client["lost"]) - int(was["lost"])) if was is not None else 0,
                published=None if published is None else round(max(0.0, published), 3),
                waits=bool(client.get("waits", False)),
                patterns=tuple(map(str, client["patterns"])),
            )
        )
    rows.sort(
        key=lambda row: (
            *(-row.lost_now, -row.queued_bytes, not row.waits, -row.lost, -(row.published or 0.0)),
            row.identity,
        )
    )
    return tuple(rows[:MAX_ROWS])


def _key(client: Mapping[str, Any]) -> tuple[object, ...]:
    return client["pid"], client["since"], client["program"]


def _troubled(sources: Iterable[Mapping[str, Any]]) -> tuple[SourceRow, ...]:
    """Sources: the silent, as they may be dead soon, then the dead, the latest first, then by missing messages."""
    rows = [
        SourceRow(str(one["src"]), str(one["state"]), float(one["silent_seconds"]), int(one.get("missing", 0)))
        for one in sources
        if one["state"] in ("silent", "dead") or one.get("missing")
    ]
    order = {"silent": 0, "dead": 1}
    rows.sort(key=lambda row: (order.get(row.state, 2), -row.missing, row.silent_seconds, row.src))
    return tuple(rows[:MAX_ROWS])


def _gateways(before: Snapshot | None, after: Snapshot, seconds: float | None) -> tuple[GatewayRow, ...]:
    known = {one["gateway"]: one for one in before.gateways} if before is not None else {}
    rows = []
    for one in after.gateways:
        total = {**one, "dropped": sum(one["dropped"].values())}
        was = known.get(one["gateway"])
        earlier = None if was is None else {**was, "dropped": sum(was["dropped"].values())}
        rows.append(_gateway(one["gateway"], one["up"], one["peers_connected"], earlier, total, seconds))
    return tuple(rows)


def _peers(before: Snapshot | None, after: Snapshot, seconds: float | None) -> tuple[GatewayRow, ...]:
    """Peers: first those that lose now, then those that have lost, then the busiest."""
    known = {
        (one["gateway"], peer["peer"], peer["since"]): peer
        for one in (before.gateways if before is not None else ())
        for peer in one["peers"]
    }
    rows = [
        _gateway(
            f"{one['gateway']} {peer['peer']}{' ' if peer['name'] else ''}{peer['name']}",
            one["up"],
            None,
            known.get((one["gateway"], peer["peer"], peer["since"])),
            peer,
            seconds,
        )
        for one in after.gateways
        if one["up"]
        for peer in one["peers"]
    ]
    rows.sort(key=lambda row: (-row.dropped_now, -row.dropped, -(row.received or 0.0) - (row.sent or 0.0), row.name))
    return tuple(rows[:MAX_ROWS])


def _gateway(
    name: str,
    up: bool,
    peers: int | None,
    was: Mapping[str, Any] | None,
    now: Mapping[str, Any],
    seconds: float | None,
) -> GatewayRow:
    def per_second(key: str) -> float | None:
        if was is None or seconds is None:
            return None
        return round(max(0, int(now[key]) - int(was[key])) / seconds, 3)

    lost = 0 if was is None else max(0, now["dropped"] - was["dropped"])
    return GatewayRow(name, up, peers, per_second("received"), per_second("sent"), now["dropped"], lost)


# -- numbers for people


def rate(value: float | None) -> str:
    """A rate in at most six characters."""
    if value is None:
        return "-"
    if value and value < 9.95:
        return f"{value:.1f}"
    return count(round(value))


def count(value: float) -> str:
    """A number in at most six characters."""
    for unit in ("", "k", "M", "G", "T"):
        if value < (9_999.5 if unit else 99_999.5):
            return f"{value:,.0f}{unit}"
        value /= 1000
    return "huge"


def size(value: float) -> str:
    """Bytes in at most six characters, in units of 1024."""
    for unit in ("", "K", "M", "G", "T"):
        if value < 1023.5:
            return f"{value:.0f}{unit}" if not unit or value >= 999.95 else f"{value:.1f}{unit}"
        value /= 1024
    return "huge"


def span(seconds: float) -> str:
    """A length of time in at most eight characters."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02d}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {left:02d}s" if minutes else f"{left}s"
