"""The daemon's Prometheus metrics, made of a snapshot at each scrape.

Invariant: label values come from the configuration and from fixed lists, never from the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from bccnd.core.observing.latency_histogram import LATENCY_BOUNDS
from bccnd.drop_catalog.drops import DROPS
from bccnd.drop_catalog.entry import PREFIX
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.take_snapshot import take_snapshot
from bccnd.net.http import Page
from bccnd.snapshot import (
    BusCounts,
    DropFamily,
    FleetCounts,
    GatewayState,
    Latency,
    SegmentState,
    Snapshot,
    SourceCounts,
)

_DIRECTION: Final = ("gateway", "direction")
_REASON: Final = ("gateway", "reason")
#: labels of the families of drops; empty for a family of one drop
_DROP_LABELS: Final = {drop.family: drop.label for drop in DROPS}
#: what the families of drops count that have no segment and no gateway
_DROP_TEXTS: Final = {
    "sources_forgotten": "Sources removed from the tracker tables, by cause",
    "deliveries_dropped": "Messages dropped for a client, by reason",
    "clients_refused": "Connections refused, by reason",
    "clients_ended": "Clients disconnected by the daemon, by reason",
    "client_errors": "Frames of clients refused, by reason",
    "fleet_hosts_evicted": "Hosts removed from or left out of the full matrix of receivers and senders",
    "identity_conflicts": "Datagrams from other senders that use the identity of a client of this host",
    "heartbeats_unwatched": "Heartbeats ignored: the table of watched sources is full",
    "copies_dropped": "Repeated copies of datagrams not sent: too many were waiting, or dedup.horizon had passed",
    "control_dropped": "Control messages to clients dropped: the queue was full",
    "state_dropped": "State of the previous daemon that was damaged or unknown, and discarded",
    "crashes": "Daemons before this one that were killed or have crashed: 1 after such an end, else 0",
    "clients_not_kept": "Clients whose connections a restart will close",
    "sources_not_kept": "Failed attempts to store the state of sources, or own numbers, while the daemon runs",
    "notifications_lost": "Notifications that the service manager did not accept",
    "reports_refused": "Datagrams of reports rejected, by reason",
    "visitors_refused": "Connections to this listener that received no page, by reason",
    "log_lines_dropped": "Log lines dropped, by reason",
}


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the metric families of a daemon."""
    yield from _segments(snapshot.segments)
    yield from _sources(snapshot.sources)
    yield from _bus(snapshot.bus)
    yield _forward(snapshot.forward)
    yield from _gateways(snapshot.gateways)
    yield from _fleet(snapshot.fleet)
    yield from _configured(snapshot)
    yield _counter_of("loop_stalled_seconds", "Seconds for which the event loop was stalled", snapshot.stalled)
    longest = "Longest stall of the event loop within the last one to two minutes"
    yield _gauge("loop_stall_seconds", longest, snapshot.longest_stall)
    yield _gauge("clock_seconds", "Clock of the host at the scrape, in seconds since 1970", snapshot.at)
    yield from _drops(snapshot.drops)
    yield _gauge("clients_taken_over", "Clients taken over from the previous daemon", snapshot.bus.taken_over)
    yield InfoMetricFamily(PREFIX + "build", "Version of the running daemon", {"version": snapshot.version})


def _segments(segments: Iterable[SegmentState]) -> Iterator[Metric]:
    received = _counter("datagrams_received", "Datagrams received from a segment", "segment")
    by_verdict = _counter("datagrams", "Datagrams received, by verdict", "segment", "verdict")
    drops = _counter("socket_drops", "Datagrams dropped by the kernel: the receive buffer was full", "segment")
    sent = _counter("datagrams_sent", "Datagrams sent to a segment", "segment")
    errors = _counter("send_errors", "Datagrams that the kernel refused to send, by error", "segment", "error")
    up = _gauges("segment_up", "Whether a segment's interface exists and is used: 1 or 0", "segment")
    reopened = _counter("segment_reopened", "Interfaces of a segment that were created again and are used", "segment")
    for segment in segments:
        received.add_metric([segment.name], segment.received)
        for verdict, count in segment.verdicts.items():
            by_verdict.add_metric([segment.name, verdict], count)
        if not segment.address:
            continue
        drops.add_metric([segment.name], segment.kernel_drops)
        sent.add_metric([segment.name], segment.sent)
        for error, count in segment.errors.items():
            errors.add_metric([segment.name, error], count)
        up.add_metric([segment.name], int(segment.up))
        reopened.add_metric([segment.name], segment.reopened)
    yield from (received, by_verdict, drops, sent, errors, up, reopened)


def _sources(sources: SourceCounts) -> Iterator[Metric]:
    yield _gauge("sources", "Sources tracked", sources.tracked)
    within = f"Sources that sent a datagram within the last {sources.within:g} s"
    yield _gauge("sources_alive", within, sources.alive)
    yield _gauge("sources_silent", "Sources whose heartbeats are missing, not yet dead", sources.silent)
    yield _counter_of("source_deaths", "Sources declared dead: too many heartbeats missing", sources.deaths)
    missing = "Messages that may still arrive: sequence numbers missing for less than dedup.horizon"
    yield _gauge("messages_missing", missing, sources.missing)
    lost = "Messages that never arrived: sequence numbers missing past dedup.horizon"
    yield _counter_of("messages_lost", lost, sources.lost)
    yield _counter_of("source_restarts", "Restarts of sources: sequence numbers began again", sources.restarts)
    jumps = (
        "Jumps of sources: dedup.sanity or more numbers were skipped, and neither a report nor the source's rate "
        "says that they were sent"
    )
    yield _counter_of("source_jumps", jumps, sources.jumps)


def _bus(bus: BusCounts) -> Iterator[Metric]:
    yield _gauge("clients", "Connected clients", bus.clients)
    yield _gauge("subscriptions", "Subscribed patterns", bus.subscriptions)
    yield _gauge("queue_bytes", "Bytes queued for slow clients", bus.queue_bytes)
    yield _counter_of("deliveries", "Messages delivered to clients", bus.deliveries)
    yield _counter_of("published", "Messages published by clients", bus.published)
    yield _counters("publishers_held", "Delays of publishers by the daemon, by reason", "reason", bus.held)


def _forward(forward: Latency) -> Metric:
    bounds = [*map(str, LATENCY_BOUNDS), "+Inf"]
    return HistogramMetricFamily(
        PREFIX + "forward_seconds",
        "Seconds from the kernel's receive timestamp to the clients' sockets, oldest datagram of each batch",
        buckets=list(zip(bounds, accumulate(forward.buckets), strict=True)),
        sum_value=forward.sum,
    )


def _gateways(gateways: Iterable[GatewayState]) -> Iterator[Metric]:
    up = _gauges("gateway_up", "Whether a gateway runs and reports: 1 or 0", "gateway")
    peers = _gauges("gateway_peers", "Peers connected to a gateway", "gateway")
    connects = _counter("gateway_connects", "Connections established between a gateway and peers", "gateway")
    messages = _counter("gateway_messages", "Messages received from peers (in) and sent to them (out)", *_DIRECTION)
    size = _counter("gateway_bytes", "Bytes received from peers (in) and sent to them (out)", *_DIRECTION)
    dropped = _counter("gateway_dropped", "Messages and connections dropped by a gateway, by reason", *_REASON)
    starts = _counter("gateway_starts", "Starts of a gateway since the start of this daemon", "gateway")
    for one in gateways:
        name = one.gateway
        up.add_metric([name], int(one.up))
        peers.add_metric([name], one.peers_connected if one.up else 0)
        starts.add_metric([name], one.starts)
        if not one.pid:  # its counts are unknown, and a zero would be taken for a reset
            continue
        connects.add_metric([name], one.connects)
        messages.add_metric([name, "in"], one.received)
        messages.add_metric([name, "out"], one.sent)
        size.add_metric([name, "in"], one.received_bytes)
        size.add_metric([name, "out"], one.sent_bytes)
        for reason, count in one.dropped.items():
            dropped.add_metric([name, reason], count)
    yield from (up, peers, connects, messages, size, dropped, starts)


def _fleet(fleet: FleetCounts) -> Iterator[Metric]:
    """Yield what hosts report about each other."""
    yield _gauge("fleet_hosts", "Hosts that have reported within the last hour, including this one", fleet.hosts)
    silent = "Hosts whose reports have been missing for three of their intervals"
    yield _gauge("fleet_hosts_silent", silent, fleet.silent)
    yield _counter_of("reports_sent", "Datagrams of reports sent", fleet.sent)
    yield _counter_of("reports_received", "Datagrams of reports received", fleet.received)
    messages = "Messages arrived by reports of hosts, by direction: this host's at others, or others' here"
    yield _counters("reported_messages", messages, "direction", fleet.messages)
    lost = "Messages lost by reports of hosts, by direction: this host's at others, or others' here"
    yield _counters("reported_lost", lost, "direction", fleet.lost)


def _configured(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield what follows from the configuration: channel groups, keys, reloads."""
    messages = {group.name: group.messages for group in snapshot.groups}
    yield _counters("channel_messages", "Messages accepted, by configured channel group", "group", messages)
    size = {group.name: group.bytes for group in snapshot.groups}
    yield _counters("channel_bytes", "Payload bytes accepted, by configured channel group", "group", size)
    yield _counters("key_verified", "Datagrams verified with a key, by its fingerprint", "key", snapshot.keys)
    reloads = snapshot.config_reloads
    yield _counters("config_reloads", "Reloads of the configuration, by result", "result", reloads)
    successful = "Whether the last reload was successful: 1, or 0 if the configuration was refused"
    yield _gauge("config_last_reload_successful", successful, int(not snapshot.refused))


def _drops(drops: Iterable[DropFamily]) -> Iterator[Metric]:
    counts = {one.family: one.counts for one in drops}
    for family, text in _DROP_TEXTS.items():
        label, by_name = _DROP_LABELS[family], counts.get(family, {})
        if label:
            yield _counters(family, text, label, by_name)
        else:
            yield _counter_of(family, text, by_name.get(family, 0))


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def _counters(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = _counter(name, text, label)
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _counter_of(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _gauges(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


class DaemonCollector(Collector):
    """Takes a snapshot of a daemon at each scrape."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon

    def collect(self) -> Iterator[Metric]:
        return families(take_snapshot(self._daemon))


def pages(daemon: DaemonState) -> dict[str, Page]:
    """Return the pages for programs by path: the metrics, and whether the daemon is alive. Those for people are in
    `status_page`."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(daemon))
    ProcessCollector(registry=registry)

    def render(accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(registry)

    return {"/metrics": render, "/healthz": lambda _accept: (200, "text/plain; charset=utf-8", b"ok\n")}
