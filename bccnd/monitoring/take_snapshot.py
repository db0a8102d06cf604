"""Takes the snapshot of the daemon.

Invariant: this costs time in proportion to the number of counters, whatever the number of clients and sources.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

from bccnd.core.wire.verdicts import NAMES
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.drop_counts import drop_counters, used_counters
from bccnd.net.segment_opening import peer_name
from bccnd.snapshot import (
    BusCounts,
    ChannelGroup,
    DaemonSummary,
    DropFamily,
    FleetCounts,
    GatewayState,
    Latency,
    SegmentState,
    Snapshot,
    SourceCounts,
)
from bccnd.version import VERSION


def take_snapshot(daemon: DaemonState) -> Snapshot:
    """Return the daemon as it is now."""
    return Snapshot(
        version=VERSION,
        host=daemon.host,
        identity=daemon.identity.decode("ascii"),
        pid=os.getpid(),
        started=round(daemon.started, 3),
        at=time.time(),
        refused=daemon.refused,
        config_reloads=dict(daemon.config_reloads),
        segments=list(_segments(daemon)),
        sources=_sources(daemon),
        bus=_bus(daemon),
        gateways=list(list_gateways(daemon)),
        fleet=_fleet(daemon),
        groups=[ChannelGroup(*group) for group in daemon.groups],
        keys={key.fingerprint: key.verified for key in daemon.keys},
        forward=Latency(daemon.forward.buckets, daemon.forward.sum),
        stalled=daemon.loop_lag.total,
        longest_stall=daemon.loop_lag.longest(daemon.now()),
        drops=[DropFamily(family, where, dict(counts)) for family, where, counts in drop_counters(daemon)],
    )


def _segments(daemon: DaemonState) -> Iterator[SegmentState]:
    segments = {one.options.name: one for one in daemon.segments}
    for counters in used_counters(daemon):
        segment, verdicts = segments.get(counters.name), counters.verdicts
        options = segment.options if segment else None
        yield SegmentState(
            name=counters.name,
            address=peer_name((options.address, options.port)) if options else "",
            interface=segment.interface if segment else "",
            up=segment is None or segment.up,
            received=sum(verdicts),
            verdicts=dict(zip(NAMES, verdicts, strict=True)),
            kernel_drops=segment.kernel_drops() if segment else 0,
            sent=counters.sent,
            errors=counters.errors.all(),
            reopened=counters.reopened,
        )


def _sources(daemon: DaemonState) -> SourceCounts:
    sources, liveness = daemon.sources, daemon.liveness
    within = liveness.interval * liveness.rules.dead_after
    return SourceCounts(
        tracked=len(sources),
        alive=sources.alive(daemon.now(), within),
        within=within,
        silent=liveness.silent,
        dead=len(liveness.dead),
        deaths=liveness.counted["deaths"],
        restarts=sources.counted["restarts"],
        jumps=sources.counted["jumps"],
        missing=sources.count_missing(),
        lost=sources.counted["lost"],
    )


def _bus(daemon: DaemonState) -> BusCounts:
    bus, counters = daemon.bus, daemon.bus.counters
    return BusCounts(
        clients=len(bus.clients),
        taken_over=daemon.taken_over,
        subscriptions=daemon.subscriptions,
        queue_bytes=bus.queue_bytes,
        queue_limits=(bus.limits.queue.messages, bus.limits.queue.bytes),
        deliveries=counters.deliveries,
        published=counters.published,
        held=counters.held.all(),
        dropped=counters.dropped.all(),
    )


def list_gateways(daemon: DaemonState) -> Iterator[GatewayState]:
    """Yield the gateways that are configured or connected. Starts are those by this daemon, or else as reported."""
    for gateway in daemon.links:
        process = daemon.gateway_processes.get(gateway.gateway)
        yield gateway if process is None else replace(gateway, starts=process.starts)


def _fleet(daemon: DaemonState) -> FleetCounts:
    reports = daemon.reports
    return FleetCounts(
        hosts=len(reports.matrix),
        silent=reports.count_silent(),
        sent=reports.sent,
        received=reports.received,
        messages=dict(reports.messages),
        lost=dict(reports.lost),
    )


def summarize(snapshot: Snapshot) -> DaemonSummary:
    """Return the row of the listing of the daemon."""
    segments = [one for one in snapshot.segments if one.address]
    return DaemonSummary(
        **{name: getattr(snapshot, name) for name in ("version", "host", "identity", "pid", "started")},
        clients=snapshot.bus.clients,
        subscriptions=snapshot.bus.subscriptions,
        sources=snapshot.sources.tracked,
        segments=[one.name for one in segments],
        received=sum(one.received for one in segments),
        sent=sum(one.sent for one in segments),
        kernel_drops=sum(one.kernel_drops for one in segments),
        verdicts={name: sum(one.verdicts[name] for one in segments) for name in NAMES},
        missing=snapshot.sources.missing,
        lost=snapshot.sources.lost,
        published=snapshot.bus.published,
        deliveries=snapshot.bus.deliveries,
        dropped=snapshot.bus.dropped,
        queue_bytes=snapshot.bus.queue_bytes,
    )
