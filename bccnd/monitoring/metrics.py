"""The daemon's Prometheus metrics, built from its counters at each scrape.

Invariant: label values come from the configuration and from fixed lists, never from the network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
from bccnd.core.wire.verdicts import NAMES
from bccnd.drops.catalog import DROPS
from bccnd.drops.entry import PREFIX
from bccnd.monitoring.daemon_state import DaemonState, all_counters, gateway_starts
from bccnd.monitoring.drop_counts import drop_counters
from bccnd.net.http import Page
from bccnd.version import VERSION

_DIRECTION: Final = ("gateway", "direction")
_REASON: Final = ("gateway", "reason")
#: labels of the families of drops; empty for a family of one drop
_DROP_LABELS: Final = {drop.family: drop.label for drop in DROPS}
#: what the families of drops count that are not counted by segment or gateway
_DROP_TEXTS: Final = {
    "identity_conflicts": "Datagrams from other senders that use the identity of a client of this host",
    "sources_forgotten": "Sources removed from the tracker tables, by cause",
    "heartbeats_unwatched": "Heartbeats ignored: the table of watched sources is full",
    "copies_dropped": "Repeated copies of datagrams not sent: too many were waiting, or dedup.horizon had passed",
    "deliveries_dropped": "Messages dropped for a client, by reason",
    "control_dropped": "Control messages to clients dropped: the queue was full",
    "clients_refused": "Connections refused, by reason",
    "clients_ended": "Clients disconnected by the daemon, by reason",
    "client_errors": "Frames of clients refused, by reason",
    "state_dropped": "State of the previous daemon that was damaged or unknown, and discarded",
    "crashes": "Daemons before this one that were killed or have crashed: 1 after such an end, else 0",
    "clients_not_kept": "Clients whose connections a restart will close",
    "sources_not_kept": "Failed attempts to store the state of sources, or own numbers, while the daemon runs",
    "notifications_lost": "Notifications that the service manager did not accept",
    "reports_refused": "Datagrams of reports rejected, by reason",
    "fleet_hosts_evicted": "Hosts removed from the matrix of receivers and senders to make room",
    "visitors_refused": "Connections to this listener that received no page, by reason",
    "log_lines_dropped": "Log lines dropped, by reason",
}


class DaemonCollector(Collector):
    """Builds the metric families of one daemon."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon

    def collect(self) -> Iterator[Metric]:
        yield from self._segments()
        yield from self._sources()
        yield from self._bus()
        yield from self._gateways()
        yield from self._fleet()
        yield from self._configured()
        yield from self._loop()
        yield from self._drops()
        yield _gauge("clients_taken_over", "Clients taken over from the previous daemon", self._daemon.taken_over)
        yield InfoMetricFamily(PREFIX + "build", "Version of the running daemon", {"version": VERSION})

    def _configured(self) -> Iterator[Metric]:
        """Yield what follows from the configuration: channel groups, keys, reloads."""
        groups = list(self._daemon.groups)
        messages = {name: count for name, count, _ in groups}
        yield _counters("channel_messages", "Messages accepted, by configured channel group", "group", messages)
        size = {name: count for name, _, count in groups}
        yield _counters("channel_bytes", "Payload bytes accepted, by configured channel group", "group", size)
        keys = _counter("key_verified", "Datagrams verified with a key, by its fingerprint", "key")
        for key in self._daemon.keys:
            keys.add_metric([key.fingerprint], key.verified)
        yield keys
        reloads = self._daemon.config_reloads
        yield _counters("config_reloads", "Reloads of the configuration, by result", "result", reloads)
        successful = "Whether the last reload was successful: 1, or 0 if the configuration was refused"
        yield _gauge("config_last_reload_successful", successful, int(not self._daemon.refused))

    def _drops(self) -> Iterator[Metric]:
        for family, _, counts in drop_counters(self._daemon):
            text = _DROP_TEXTS.get(family)
            if text is None:
                continue
            label = _DROP_LABELS[family]
            yield _counters(family, text, label, counts) if label else _counter_of(family, text, counts[family])

    def _fleet(self) -> Iterator[Metric]:
        """Yield what hosts report about each other."""
        reports = self._daemon.reports
        yield _gauge(
            "fleet_hosts", "Hosts that have reported within the last hour, including this one", len(reports.matrix)
        )
        silent = "Hosts whose reports have been missing for three of their intervals"
        yield _gauge("fleet_hosts_silent", silent, reports.count_silent())
        yield _counter_of("reports_sent", "Datagrams of reports sent", reports.sent)
        yield _counter_of("reports_received", "Datagrams of reports received", reports.received)
        messages = "Messages arrived by reports of hosts, by direction: this host's at others, or others' here"
        yield _counters("reported_messages", messages, "direction", reports.messages)
        lost = "Messages lost by reports of hosts, by direction: this host's at others, or others' here"
        yield _counters("reported_lost", lost, "direction", reports.lost)

    def _loop(self) -> Iterator[Metric]:
        loop_lag = self._daemon.loop_lag
        yield _counter_of("loop_stalled_seconds", "Seconds for which the event loop was stalled", loop_lag.total)
        longest = "Longest stall of the event loop within the last one to two minutes"
        yield _gauge("loop_stall_seconds", longest, loop_lag.longest(self._daemon.now()))
        yield _gauge("clock_seconds", "Clock of the host at the scrape, in seconds since 1970", time.time())

    def _segments(self) -> Iterator[Metric]:
        received = _counter("datagrams_received", "Datagrams received from a segment", "segment")
        by_verdict = _counter("datagrams", "Datagrams received, by verdict", "segment", "verdict")
        drops = _counter("socket_drops", "Datagrams dropped by the kernel: the receive buffer was full", "segment")
        sent = _counter("datagrams_sent", "Datagrams sent to a segment", "segment")
        errors = _counter("send_errors", "Datagrams that the kernel refused to send, by error", "segment", "error")
        up = _gauges("segment_up", "Whether a segment's interface exists and is used: 1 or 0", "segment")
        reopened = _counter(
            "segment_reopened", "Interfaces of a segment that were created again and are used", "segment"
        )
        for counters in all_counters(self._daemon):
            received.add_metric([counters.name], counters.received)
            for name, count in zip(NAMES, counters.verdicts, strict=True):
                by_verdict.add_metric([counters.name, name], count)
        for segment in self._daemon.segments:
            counters = segment.counters
            drops.add_metric([counters.name], segment.kernel_drops())
            sent.add_metric([counters.name], counters.sent)
            for error, count in counters.errors.all().items():
                errors.add_metric([counters.name, error], count)
            up.add_metric([counters.name], int(segment.up))
            reopened.add_metric([counters.name], counters.reopened)
        yield from (received, by_verdict, drops, sent, errors, up, reopened)

    def _sources(self) -> Iterator[Metric]:
        sources = self._daemon.sources
        yield _gauge("sources", "Sources tracked", len(sources))
        liveness = self._daemon.liveness
        within = liveness.interval * liveness.rules.dead_after
        alive = sources.alive(self._daemon.now(), within)
        yield _gauge("sources_alive", f"Sources that sent a datagram within the last {within:g} s", alive)
        yield _gauge("sources_silent", "Sources whose heartbeats are missing, not yet dead", liveness.silent)
        yield _counter_of(
            "source_deaths", "Sources declared dead: too many heartbeats missing", liveness.counted["deaths"]
        )
        missing = "Messages that may still arrive: sequence numbers missing for less than dedup.horizon"
        yield _gauge("messages_missing", missing, sources.count_missing())
        yield _counter_of(
            "messages_lost",
            "Messages that never arrived: sequence numbers missing past dedup.horizon",
            sources.counted["lost"],
        )
        yield _counter_of(
            "source_restarts", "Restarts of sources: sequence numbers began again", sources.counted["restarts"]
        )
        jumps = (
            "Jumps of sources: dedup.sanity or more numbers were skipped, and neither a report nor the source's rate "
            "says that they were sent"
        )
        yield _counter_of("source_jumps", jumps, sources.counted["jumps"])

    def _bus(self) -> Iterator[Metric]:
        bus = self._daemon.bus
        yield _gauge("clients", "Connected clients", len(bus.clients))
        yield _gauge("subscriptions", "Subscribed patterns", self._daemon.subscriptions)
        yield _gauge("queue_bytes", "Bytes queued for slow clients", bus.queue_bytes)
        counters = bus.counters
        yield _counter_of("deliveries", "Messages delivered to clients", counters.deliveries)
        yield _counter_of("published", "Messages published by clients", counters.published)
        held = "Delays of publishers by the daemon, by reason"
        yield _counters("publishers_held", held, "reason", counters.held.all())
        yield self._forward()

    def _gateways(self) -> Iterator[Metric]:
        up = _gauges("gateway_up", "Whether a gateway runs and reports: 1 or 0", "gateway")
        peers = _gauges("gateway_peers", "Peers connected to a gateway", "gateway")
        connects = _counter("gateway_connects", "Connections established between a gateway and peers", "gateway")
        messages = _counter("gateway_messages", "Messages received from peers (in) and sent to them (out)", *_DIRECTION)
        size = _counter("gateway_bytes", "Bytes received from peers (in) and sent to them (out)", *_DIRECTION)
        dropped = _counter("gateway_dropped", "Messages and connections dropped by a gateway, by reason", *_REASON)
        starts = _counter("gateway_starts", "Starts of a gateway since the start of this daemon", "gateway")
        for report in self._daemon.links:
            name = report["gateway"]
            up.add_metric([name], int(report["up"]))
            peers.add_metric([name], report["peers_connected"] if report["up"] else 0)
            starts.add_metric([name], gateway_starts(self._daemon, report))
            if not self._daemon.links.has_reported(name):
                continue
            connects.add_metric([name], report["connects"])
            for direction, key in (("in", "received"), ("out", "sent")):
                messages.add_metric([name, direction], report[key])
                size.add_metric([name, direction], report[f"{key}_bytes"])
            for reason, count in report["dropped"].items():
                dropped.add_metric([name, reason], count)
        yield from (up, peers, connects, messages, size, dropped, starts)

    def _forward(self) -> Metric:
        forward = self._daemon.forward
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip([*map(str, LATENCY_BOUNDS), "+Inf"], forward.buckets, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            PREFIX + "forward_seconds",
            "Seconds from the kernel's receive timestamp to the clients' sockets, oldest datagram of each batch",
            buckets=buckets,
            sum_value=forward.sum,
        )


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
