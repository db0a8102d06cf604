"""Computes the figures of `bccn top` from two looks at the daemon and the messages counted in between.

Uses no terminal, socket or clock. What is not known is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bccnd.cli.diagnosis.tap import KINDS
from bccnd.snapshot import ClientState, DaemonSummary, GatewayState, SourceState

#: names counted in one interval; further ones are counted together
MAX_NAMES: Final = 10_000
#: rows of each table
MAX_ROWS: Final = 100
OTHERS: Final = "(others)"
#: sender of messages whose keys are not valid channels
NAMELESS: Final = "(no sender)"

_LOSSES: Final = ("missing", "lost", "kernel_drops")
_STATES: Final = ("alive", "silent", "dead")
#: what is shown of a client
_CLIENT: Final = ("identity", "queued", "queued_bytes", "lost", "waits", "patterns")

Row = dict[str, Any]


@dataclass
class TrafficCount:
    """Counts messages and their bytes by name; ``lost`` are those for which this program was too slow."""

    messages: int = 0
    lost: int = 0
    channels: dict[str, list[int]] = field(default_factory=dict)
    senders: dict[str, list[int]] = field(default_factory=dict)

    def add(self, chan: str, src: str, size: int) -> None:
        self.messages += 1
        for table, name in ((self.channels, chan), (self.senders, src or NAMELESS)):
            counts = table.get(name)
            if counts is None:
                counts = table.setdefault(name if len(table) < MAX_NAMES else OTHERS, [0, 0])
            counts[0] += 1
            counts[1] += size


@dataclass(frozen=True)
class Look:
    """Listings of the daemon at a time (monotonic). ``sources`` and ``worst_links`` may be older, as there may be
    many."""

    at: float
    daemon: DaemonSummary
    clients: list[ClientState] = field(default_factory=list)
    sources: list[SourceState] = field(default_factory=list)
    gateways: list[GatewayState] = field(default_factory=list)
    worst_links: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Figures:
    """What `bccn top` shows. ``seconds`` is the length of the interval, None without an earlier look at the same
    daemon: then ``rates`` (per second) are empty. ``new``, ``lost_now`` and ``dropped_now`` are of the interval. In
    ``heard_seconds``, ``heard`` messages were counted, and ``unheard`` were missed. Rates in rows are None at first.
    """

    daemon: DaemonSummary
    seconds: float | None
    rates: dict[str, float]
    totals: dict[str, int]
    losses: dict[str, int]
    new: dict[str, int]
    dropped_now: dict[str, int]
    states: dict[str, int]
    heard_seconds: float
    heard: int
    unheard: int
    busy_channels: list[Row]
    busy_senders: list[Row]
    worst_clients: list[Row]
    troubled_sources: list[Row]
    gateways: list[Row]
    peers: list[Row]
    worst_links: list[Row]


def restarted(before: Look | None, after: Look) -> bool:
    """Return whether two looks are at different daemons."""
    if before is None:
        return False
    return (before.daemon.pid, before.daemon.started) != (after.daemon.pid, after.daemon.started)


def figures(before: Look | None, after: Look, traffic: TrafficCount, heard_seconds: float) -> Figures:
    """Compute the figures; ``before`` is None for the first look."""
    if before is None or restarted(before, after):
        before = Look(after.at, after.daemon)
    now, was = after.daemon, before.daemon
    seconds = round(after.at - before.at, 3) if after.at > before.at else None
    totals, earlier = _totals(now), _totals(was)
    losses, lost_before = ({name: getattr(one, name) for name in _LOSSES} for one in (now, was))
    dropped_now = {reason: count - was.dropped.get(reason, 0) for reason, count in now.dropped.items()}
    peers = _links(_peers(before.gateways), _peers(after.gateways), seconds)
    peers.sort(key=lambda row: (-row["dropped_now"], -row["dropped"], -(row["received"] or 0) - (row["sent"] or 0)))
    return Figures(
        daemon=now,
        seconds=seconds,
        rates={} if seconds is None else {name: _rate(totals[name], earlier[name], seconds) or 0.0 for name in totals},
        totals=totals,
        losses=losses,
        new={name: max(0, losses[name] - lost_before[name]) for name in _LOSSES},
        dropped_now={reason: count for reason, count in dropped_now.items() if count > 0},
        states={state: sum(one.state == state for one in after.sources) for state in _STATES},
        heard_seconds=round(heard_seconds, 3),
        heard=traffic.messages,
        unheard=traffic.lost,
        busy_channels=_busiest(traffic.channels, heard_seconds),
        busy_senders=_busiest(traffic.senders, heard_seconds),
        worst_clients=_worst(before.clients, after.clients, seconds),
        troubled_sources=_troubled(after.sources),
        gateways=_links(_gateways(before.gateways), _gateways(after.gateways), seconds),
        peers=peers[:MAX_ROWS],
        worst_links=after.worst_links[:MAX_ROWS],
    )


def _totals(daemon: DaemonSummary) -> dict[str, int]:
    """Return the counters of the daemon, and the sums of those of verdicts by kind."""
    counters = {name: getattr(daemon, name) for name in ("received", "sent", "published", "deliveries")}
    return counters | {kind: sum(daemon.verdicts.get(name, 0) for name in names) for kind, names in KINDS.items()}


def _rate(now: int, was: int | None, seconds: float | None) -> float | None:
    return None if was is None or seconds is None else round(max(0, now - was) / seconds, 3)


def _busiest(table: Mapping[str, list[int]], seconds: float) -> list[Row]:
    if seconds <= 0:
        return []
    ranked = sorted(table.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))[:MAX_ROWS]
    return [
        {"name": name, "messages": round(count / seconds, 3), "bytes": round(size / seconds, 3)}
        for name, (count, size) in ranked
    ]


def _worst(before: Iterable[ClientState], after: Iterable[ClientState], seconds: float | None) -> list[Row]:
    """Return clients: first those that lose now, then by queue, waiting, losses and rate."""
    known = {(one.pid, one.since, one.program): one for one in before}
    rows = []
    for one in after:
        was = known.get((one.pid, one.since, one.program))
        row: Row = {name: getattr(one, name) for name in _CLIENT}
        row["lost_now"] = 0 if was is None else max(0, one.lost - was.lost)
        row["published"] = None if was is None else _rate(one.published, was.published, seconds)
        rows.append(row)
    troubles = ("lost_now", "queued_bytes", "waits", "lost", "published")
    rows.sort(key=lambda row: ([-(row[name] or 0) for name in troubles], row["identity"]))
    return rows[:MAX_ROWS]


def _troubled(sources: Iterable[SourceState]) -> list[Row]:
    """Return sources: the silent, as they may be dead soon, then the dead, the latest first, then by missing."""
    rows: list[Row] = [
        {"src": one.src, "state": one.state, "silent_seconds": one.silent_seconds, "missing": one.missing or 0}
        for one in sources
        if one.state in ("silent", "dead") or one.missing
    ]
    order = {"silent": 0, "dead": 1}
    rows.sort(key=lambda row: (order.get(row["state"], 2), -row["missing"], row["silent_seconds"], row["src"]))
    return rows[:MAX_ROWS]


def _gateways(gateways: Iterable[GatewayState]) -> dict[Any, Row]:
    return {
        one.gateway: vars(one)
        | {"name": one.gateway, "peers": one.peers_connected, "dropped": sum(one.dropped.values())}
        for one in gateways
    }


def _peers(gateways: Iterable[GatewayState]) -> dict[Any, Row]:
    """Return the peers of gateways that are up, by what identifies them."""
    return {
        (one.gateway, peer.peer, peer.since): vars(peer)
        | {"name": " ".join(filter(None, (one.gateway, peer.peer, peer.name))), "up": True, "peers": None}
        for one in gateways
        if one.up
        for peer in one.peers
    }


def _links(before: Mapping[Any, Row], after: Mapping[Any, Row], seconds: float | None) -> list[Row]:
    rows = []
    for key, now in after.items():
        was = before.get(key, {})
        row: Row = {name: now[name] for name in ("name", "up", "peers", "dropped")}
        row |= {name: _rate(now[name], was.get(name), seconds) for name in ("received", "sent")}
        rows.append(row | {"dropped_now": max(0, now["dropped"] - was.get("dropped", now["dropped"]))})
    return rows


# -- formatting


def rate(value: float | None) -> str:
    """Format a rate in at most six characters."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value and value < 9.95 else count(round(value))


def count(value: float) -> str:
    """Format a number in at most six characters."""
    for unit in ("", "k", "M", "G", "T"):
        if value < (9_999.5 if unit else 99_999.5):
            return f"{value:,.0f}{unit}"
        value /= 1000
    return "huge"


def size(value: float) -> str:
    """Format bytes in at most six characters, in units of 1024."""
    for unit in ("", "K", "M", "G", "T"):
        if value < 1023.5:
            return f"{value:.0f}{unit}" if not unit or value >= 999.95 else f"{value:.1f}{unit}"
        value /= 1024
    return "huge"


def span(seconds: float) -> str:
    """Format a duration in at most eight characters."""
    minutes, left = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02d}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {left:02d}s" if minutes else f"{left}s"
