"""Reads the daemon's counters as counts of the drop catalog's entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from bccnd import log
from bccnd.bus.requests.recorder_reports import RECORDED
from bccnd.core.observing.counters import ERROR_REASONS, SegmentCounters
from bccnd.core.wire.verdicts import NAMES as VERDICTS
from bccnd.drop_catalog.drops import BY_NAME, DROPS
from bccnd.drop_catalog.entry import Drop
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.snapshot import DropFamily


class DropCount(NamedTuple):
    """How often a drop happened since the start; ``where`` is a segment or a gateway, or empty."""

    drop: Drop
    where: str
    total: int


def count_drops(families: Iterable[DropFamily]) -> Iterator[DropCount]:
    """Yield all counts, including zeros, in the order of the catalog; those of gateways and recorders as reported."""
    found: dict[tuple[str, str], list[DropCount]] = {}
    for one in families:
        for name, count in one.counts.items():
            drop = BY_NAME.get((one.family, name))
            if drop is not None:  # other verdicts are accepted
                found.setdefault((one.family, name), []).append(DropCount(drop, one.where, count))
    for drop in DROPS:
        yield from found.get((drop.family, drop.name), ())


def used_counters(daemon: DaemonState) -> list[SegmentCounters]:
    """Return the counters of segments, and of links that are configured or have received anything."""
    links = daemon.links
    used = [one for one in links.counters if one.received or one.name in links.expected]
    return [*(segment.counters for segment in daemon.segments), *used]


def drop_counters(daemon: DaemonState) -> Iterator[tuple[str, str, Mapping[str, int]]]:
    """Yield the families of the catalog with a place, and the counts there by name."""
    links, sources, bus = daemon.links, daemon.sources, daemon.bus.counters
    for segment in daemon.segments:
        yield "socket_drops", segment.options.name, {"socket_drops": segment.kernel_drops()}
    for counters in used_counters(daemon):
        yield "datagrams", counters.name, dict(zip(VERDICTS, counters.verdicts, strict=True))
    for segment in daemon.segments:
        refused = sum(segment.counters.errors.all().values())
        yield "send_errors", segment.options.name, {"send_errors": refused}
    forgotten = {
        **{name: sources.counted[name] for name in ("expired", "evicted", "own_evicted", "restarts_evicted")},
        "nameless_evicted": daemon.anonymous.counted["evicted"],
        "dead_evicted": daemon.liveness.counted["dead_evicted"],
    }
    yield "sources_forgotten", "", forgotten
    yield "deliveries_dropped", "", bus.dropped.all()
    yield "clients_refused", "", bus.refused.all()
    yield "clients_ended", "", bus.ended.all()
    yield "client_errors", "", {**dict.fromkeys(ERROR_REASONS, 0), **bus.errors.all()}
    for name, count in (
        ("fleet_hosts_evicted", daemon.reports.matrix.evicted + sources.senders.evicted),
        ("identity_conflicts", sources.counted["conflicts"]),
        ("heartbeats_unwatched", daemon.liveness.counted["unwatched"]),
        ("copies_dropped", daemon.repeater.dropped),
        ("control_dropped", bus.control_dropped),
        ("state_dropped", daemon.state_dropped),
        ("crashes", daemon.crashes),
        ("clients_not_kept", daemon.clients_not_kept),
        ("sources_not_kept", daemon.sources_not_kept),
        ("notifications_lost", daemon.notifications_lost),
    ):
        yield name, "", {name: count}
    yield "reports_refused", "", daemon.reports.refused
    yield "visitors_refused", "", daemon.visitors_refused
    yield "log_lines_dropped", "", log.lines_dropped()
    for family, name in RECORDED:
        yield family, "", {name: daemon.recorders.count(family, name)}
    for gateway in links:
        if links.has_reported(gateway.gateway):
            yield "gateway_dropped", gateway.gateway, gateway.dropped
