"""The daemon's Prometheus metrics, built from its counters at each scrape.

Invariant: label values come from the configuration and from fixed lists, never from the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

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

from bccnd import log
from bccnd.bus.gateway_links import GatewayLinks
from bccnd.bus.recorder_reports import RecorderReports
from bccnd.bus.server import Bus
from bccnd.core.algorithms import KeyUse
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.counters import ERROR_REASONS, LATENCY_BOUNDS, Histogram, SegmentCounters
from bccnd.core.dedup import TrackerTable
from bccnd.core.liveness import Liveness
from bccnd.core.loop_lag import LoopLag
from bccnd.core.redundancy import Repeater
from bccnd.core.verdicts import NAMES
from bccnd.net.child_process import ChildProcess
from bccnd.net.segment import Segment
from bccnd.version import VERSION

PREFIX = "bccnd_"
_DIRECTION = ("gateway", "direction")
_REASON = ("gateway", "reason")


class DaemonState(Protocol):
    """The daemon's state, as far as metrics show it."""

    segments: list[Segment]
    bus: Bus
    sources: TrackerTable
    anonymous: AnonymousDedup
    liveness: Liveness
    repeater: Repeater
    forward: Histogram
    loop_lag: LoopLag
    config_reloads: dict[str, int]
    links: GatewayLinks
    recorders: RecorderReports
    taken_over: int
    state_dropped: int
    visitors_refused: dict[str, int]

    @property
    def refused(self) -> str: ...
    @property
    def gateway_processes(self) -> dict[str, ChildProcess]: ...
    @property
    def clients_not_kept(self) -> int: ...
    @property
    def sources_not_kept(self) -> int: ...
    @property
    def notifications_lost(self) -> int: ...
    @property
    def subscriptions(self) -> int: ...
    @property
    def keys(self) -> Iterable[KeyUse]: ...
    @property
    def groups(self) -> Iterable[tuple[str, int, int]]: ...
    def now(self) -> float: ...


def all_counters(daemon: DaemonState) -> list[SegmentCounters]:
    """Return the counters of segments, and of links that are configured or have received anything."""
    links = daemon.links
    used = [one for one in links.counters if one.received or one.name in links.expected]
    return [*(segment.counters for segment in daemon.segments), *used]


class DaemonCollector(Collector):
    """Builds the metric families of one daemon."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon

    def collect(self) -> Iterator[Metric]:
        yield from self._segments()
        yield from self._sources()
        yield from self._bus()
        yield from self._gateways()
        yield from self._configured()
        yield from self._handover()
        yield from self._loop()
        lost = "Notifications that the service manager did not accept"
        yield _counter_of("notifications_lost", lost, self._daemon.notifications_lost)
        refused = "Connections to this listener that got no page, by reason"
        yield _counters("visitors_refused", refused, "reason", self._daemon.visitors_refused)
        yield _counters("log_lines_dropped", "Log lines dropped, by reason", "reason", log.lines_dropped())
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

    def _handover(self) -> Iterator[Metric]:
        daemon = self._daemon
        yield _gauge("clients_taken_over", "Clients taken over from the previous daemon", daemon.taken_over)
        discarded = "State of the previous daemon that was damaged or unknown, and discarded"
        yield _counter_of("state_dropped", discarded, daemon.state_dropped)
        yield _counter_of("clients_not_kept", "Clients whose connections a restart will close", daemon.clients_not_kept)
        failed = "Failed attempts to store the state of sources for the next daemon"
        yield _counter_of("sources_not_kept", failed, daemon.sources_not_kept)

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
        for counters in all_counters(self._daemon):
            received.add_metric([counters.name], counters.received)
            for name, count in zip(NAMES, counters.verdicts, strict=True):
                by_verdict.add_metric([counters.name, name], count)
        for segment in self._daemon.segments:
            counters = segment.counters
            drops.add_metric([counters.name], segment.kernel_drops())
            sent.add_metric([counters.name], counters.sent)
            for error, count in counters.send_errors.items():
                errors.add_metric([counters.name, error], count)
        yield from (received, by_verdict, drops, sent, errors)
        unsent = "Repeated copies of datagrams not sent: too many were waiting, or dedup.horizon had passed"
        yield _counter_of("copies_dropped", unsent, self._daemon.repeater.dropped)

    def _sources(self) -> Iterator[Metric]:
        sources = self._daemon.sources
        yield _gauge("sources", "Sources tracked", len(sources))
        liveness = self._daemon.liveness
        rules = liveness.rules
        within = rules.interval * rules.dead_after
        alive = sources.alive(self._daemon.now(), within)
        yield _gauge("sources_alive", f"Sources that sent a datagram within the last {within:g} s", alive)
        yield _gauge("sources_silent", "Sources whose heartbeats are missing, not yet dead", liveness.silent)
        yield _counter_of("source_deaths", "Sources declared dead: too many heartbeats missing", liveness.deaths)
        missing = "Messages that may still arrive: sequence numbers missing for less than dedup.horizon"
        yield _gauge("messages_missing", missing, sources.missing)
        yield _counter_of(
            "messages_lost", "Messages that never arrived: sequence numbers missing past dedup.horizon", sources.lost
        )
        yield _counter_of("source_restarts", "Restarts of sources: sequence numbers began again", sources.restarts)
        yield _counter_of("source_jumps", "Jumps of sources: dedup.sanity or more numbers were skipped", sources.jumps)
        unwatched = "Heartbeats ignored: the table of watched sources is full"
        yield _counter_of("heartbeats_unwatched", unwatched, liveness.unwatched)
        conflicts = "Datagrams from other senders that use the identity of a client of this host"
        yield _counter_of("identity_conflicts", conflicts, sources.conflicts)
        forgotten = {
            "expired": sources.expired,
            "evicted": sources.evicted,
            "nameless_evicted": self._daemon.anonymous.evicted,
            "own_evicted": sources.own_evicted,
            "restarts_evicted": sources.restarts_evicted,
            "dead_evicted": liveness.dead_evicted,
        }
        yield _counters("sources_forgotten", "Sources removed from the tracker tables, by cause", "cause", forgotten)

    def _bus(self) -> Iterator[Metric]:
        bus = self._daemon.bus
        yield _gauge("clients", "Connected clients", len(bus.clients))
        yield _gauge("subscriptions", "Subscribed patterns", self._daemon.subscriptions)
        yield _gauge("queue_bytes", "Bytes queued for slow clients", bus.queue_bytes)
        counters = bus.counters
        yield _counter_of("deliveries", "Messages delivered to clients", counters.deliveries)
        yield _counter_of("published", "Messages published by clients", counters.published)
        for name, text, counts in (
            ("deliveries_dropped", "Messages dropped for a client, by reason", counters.dropped),
            ("clients_refused", "Connections refused, by reason", counters.refused),
            ("clients_ended", "Clients disconnected by the daemon, by reason", counters.ended),
            ("publishers_held", "Times that a publisher was made to wait, by reason", counters.held),
            ("client_errors", "Frames of clients refused, by reason", _with_zeros(counters.errors)),
        ):
            yield _counters(name, text, "reason", counts)
        dropped = "Control messages to clients dropped: the queue was full"
        yield _counter_of("control_dropped", dropped, counters.untold)
        yield self._forward()

    def _gateways(self) -> Iterator[Metric]:
        up = _gauges("gateway_up", "Whether a gateway runs and reports: 1 or 0", "gateway")
        peers = _gauges("gateway_peers", "Peers connected to a gateway", "gateway")
        connects = _counter("gateway_connects", "Connections established between a gateway and peers", "gateway")
        messages = _counter("gateway_messages", "Messages received from peers (in) and sent to them (out)", *_DIRECTION)
        size = _counter("gateway_bytes", "Bytes received from peers (in) and sent to them (out)", *_DIRECTION)
        dropped = _counter("gateway_dropped", "Messages and connections dropped by a gateway, by reason", *_REASON)
        links = self._daemon.links
        for report in links:
            name = report["gateway"]
            up.add_metric([name], int(report["up"]))
            peers.add_metric([name], report["peers_connected"] if report["up"] else 0)
            connects.add_metric([name], report["connects"])
            for direction, key in (("in", "received"), ("out", "sent")):
                messages.add_metric([name, direction], report[key])
                size.add_metric([name, direction], report[f"{key}_bytes"])
            for reason, count in report["dropped"].items():
                dropped.add_metric([name, reason], count)
        starts = _counter("gateway_starts", "Starts of a gateway by this daemon", "gateway")
        for name in links.expected:
            program = self._daemon.gateway_processes.get(name)
            starts.add_metric([name], 0 if program is None else program.starts)
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


def _with_zeros(errors: dict[str, int]) -> dict[str, int]:
    """Return counts of all reasons, including those that are zero."""
    return {**dict.fromkeys(ERROR_REASONS, 0), **errors}


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


def pages(daemon: DaemonState) -> dict[str, Callable[[str], tuple[int, str, bytes]]]:
    """Return the pages for programs, by path; those for people are in `status_page`."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(daemon))
    ProcessCollector(registry=registry)

    def metrics(accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(registry)

    def healthz(_accept: str) -> tuple[int, str, bytes]:
        return 200, "text/plain; charset=utf-8", b"ok\n"

    return {"/metrics": metrics, "/healthz": healthz}
