"""What Prometheus sees of the daemon.

Law: families are made when somebody asks, from plain integers that others own; labels come from the
configuration and from fixed lists, never from the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
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
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.counters import ERROR_REASONS, LATENCY_BOUNDS, Histogram, SegmentCounters
from bccnd.core.dedup import TrackerTable
from bccnd.core.integrity import KeyUse
from bccnd.core.liveness import Liveness
from bccnd.core.loop_lag import LoopLag
from bccnd.core.redundancy import Repeater
from bccnd.core.verdicts import NAMES
from bccnd.net.child_process import ChildProcess
from bccnd.net.segment import Segment
from bccnd.version import VERSION

PREFIX = "bccnd_"
_WAYS = ("gateway", "direction")
_REASON = ("gateway", "reason")


class Observed(Protocol):
    """The daemon's state, as far as it is shown."""

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
    def programs(self) -> dict[str, ChildProcess]: ...
    @property
    def not_kept(self) -> int: ...
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


def all_counters(daemon: Observed) -> list[SegmentCounters]:
    """Those of the segments, and of the links that there are or were."""
    links = daemon.links
    brought = [one for one in links.counters if one.received or one.name in links.expected]
    return [*(segment.counters for segment in daemon.segments), *brought]


class DaemonCollector(Collector):
    """Makes the families of one daemon."""

    def __init__(self, daemon: Observed) -> None:
        self._daemon = daemon
        self._version = VERSION

    def collect(self) -> Iterator[Metric]:
        yield from self._segments()
        yield from self._sources()
        yield from self._bus()
        yield from self._gateways()
        groups = _counter("channel_messages", "Accepted messages by configured channel group", "group")
        size = _counter("channel_bytes", "Accepted payload bytes by configured channel group", "group")
        for name, messages, total in self._daemon.groups:
            groups.add_metric([name], messages)
            size.add_metric([name], total)
        yield groups
        yield size
        keys = _counter("key_verified", "Datagrams that a key has verified, by its fingerprint", "key")
        for key in self._daemon.keys:
            keys.add_metric([key.fingerprint], key.verified)
        yield keys
        reloads = _counter("config_reloads", "Reloads of the configuration by result", "result")
        for result, count in self._daemon.config_reloads.items():
            reloads.add_metric([result], count)
        yield reloads
        good = "Whether the configuration is in force that was read last: 1, or 0 where a reload has refused it"
        yield _gauge("config_last_reload_successful", good, int(not self._daemon.refused))
        yield _gauge(
            "clients_taken_over", "Clients that were left by the daemon before this one", self._daemon.taken_over
        )
        unread = "Things left by the daemon before this one that were not understood"
        yield _counter_of("state_dropped", unread, self._daemon.state_dropped)
        yield _counter_of("clients_not_kept", "Clients that will not outlive a restart", self._daemon.not_kept)
        yield from self._loop()
        unwritten = "How often what is known of sources could not be written down for the next daemon"
        yield _counter_of("sources_not_kept", unwritten, self._daemon.sources_not_kept)
        lost = "Notifications that the service manager did not take"
        yield _counter_of("notifications_lost", lost, self._daemon.notifications_lost)
        for name, text, counts in (
            (
                "visitors_refused",
                "Visitors of this listener who got no answer, by reason",
                self._daemon.visitors_refused,
            ),
            ("log_lines_dropped", "Lines of the log that nobody has seen, by reason", log.lines_dropped()),
        ):
            family = _counter(name, text, "reason")
            for reason, count in counts.items():
                family.add_metric([reason], count)
            yield family
        yield InfoMetricFamily(PREFIX + "build", "The running version", {"version": self._version})

    def _loop(self) -> Iterator[Metric]:
        loop_lag = self._daemon.loop_lag
        yield _counter_of("loop_stalled_seconds", "Seconds for which the daemon's loop stood still", loop_lag.total)
        longest = "Longest time for which the daemon's loop stood still within the last minute or two"
        yield _gauge("loop_stall_seconds", longest, loop_lag.longest(self._daemon.now()))
        yield _gauge("clock_seconds", "The host's clock when it was asked, in seconds since 1970", time.time())

    def _segments(self) -> Iterator[Metric]:
        received = _counter("datagrams_received", "Datagrams read from the segment's socket", "segment")
        judged = _counter("datagrams", "Datagrams by verdict; the sum equals the number read", "segment", "verdict")
        drops = _counter("socket_drops", "Datagrams the kernel dropped because the socket's buffer was full", "segment")
        sent = _counter("datagrams_sent", "Datagrams broadcast", "segment")
        errors = _counter("send_errors", "Datagrams that the kernel refused to send", "segment", "error")
        for counters in all_counters(self._daemon):
            received.add_metric([counters.name], counters.received)
            for name, count in zip(NAMES, counters.verdicts, strict=True):
                judged.add_metric([counters.name, name], count)
        for segment in self._daemon.segments:
            counters = segment.counters
            drops.add_metric([counters.name], segment.kernel_drops())
            sent.add_metric([counters.name], counters.sent)
            for error, count in counters.send_errors.items():
                errors.add_metric([counters.name, error], count)
        yield from (received, judged, drops, sent, errors)
        unsent = "Copies of datagrams that were not sent: too many were waiting, or the horizon had passed"
        yield _counter_of("copies_dropped", unsent, self._daemon.repeater.dropped)

    def _sources(self) -> Iterator[Metric]:
        sources = self._daemon.sources
        yield _gauge("sources", "Sources tracked", len(sources))
        liveness = self._daemon.liveness
        rules = liveness.rules
        within = rules.interval * rules.dead_after
        alive = sources.alive(self._daemon.now(), within)
        yield _gauge("sources_alive", f"Sources heard within the last {within:g} s", alive)
        yield _gauge("sources_silent", "Sources whose heartbeats are missing and that are not dead", liveness.silent)
        yield _counter_of("source_deaths", "Sources that were found dead for want of heartbeats", liveness.deaths)
        missing = "Messages that may still arrive: seqs in a gap younger than the horizon"
        yield _gauge("messages_missing", missing, sources.missing)
        yield _counter_of("messages_lost", "Messages that never arrived: seqs in a gap past the horizon", sources.lost)
        yield _counter_of("source_restarts", "Sources that began their numbers anew", sources.restarts)
        yield _counter_of("source_jumps", "Sources that jumped ahead too far for it to be loss", sources.jumps)
        unwatched = "Heartbeats of sources that are not watched, because too many are"
        yield _counter_of("heartbeats_unwatched", unwatched, liveness.unwatched)
        conflicts = "Datagrams that somebody else sent under the name of a program of this host"
        yield _counter_of("identity_conflicts", conflicts, sources.conflicts)
        forgotten = _counter("sources_forgotten", "Trackers given up, by cause", "cause")
        forgotten.add_metric(["expired"], sources.expired)
        forgotten.add_metric(["evicted"], sources.evicted)
        forgotten.add_metric(["nameless_evicted"], self._daemon.anonymous.evicted)
        forgotten.add_metric(["own_evicted"], sources.own_evicted)
        forgotten.add_metric(["restarts_evicted"], sources.restarts_evicted)
        forgotten.add_metric(["dead_evicted"], liveness.dead_evicted)
        yield forgotten

    def _bus(self) -> Iterator[Metric]:
        bus = self._daemon.bus
        yield _gauge("clients", "Clients connected", len(bus.clients))
        yield _gauge("subscriptions", "Patterns subscribed to", self._daemon.subscriptions)
        yield _gauge("queue_bytes", "Bytes waiting for clients that do not read", bus.queue_bytes)
        counters = bus.counters
        yield _counter_of("deliveries", "Messages handed to clients", counters.deliveries)
        yield _counter_of("published", "Messages that clients published", counters.published)
        for name, text, counts in (
            ("deliveries_dropped", "Messages dropped for a client, by reason", counters.dropped),
            ("clients_refused", "Connections turned away, by reason", counters.refused),
            ("clients_ended", "Clients that the daemon disconnected, by reason", counters.ended),
            ("publishers_held", "How often a publisher was made to wait, by reason", counters.held),
            ("client_errors", "Frames of clients that were refused, by reason", _with_zeros(counters.errors)),
        ):
            family = _counter(name, text, "reason")
            for reason, count in counts.items():
                family.add_metric([reason], count)
            yield family
        untold = "Control messages for a client that were dropped because its queue was full"
        yield _counter_of("control_dropped", untold, counters.untold)
        yield self._forward()

    def _gateways(self) -> Iterator[Metric]:
        up = _gauges("gateway_up", "Whether a gateway is there and reports: 1 or 0", "gateway")
        peers = _gauges("gateway_peers", "Peers connected to a gateway", "gateway")
        connects = _counter("gateway_connects", "Connections of peers to a gateway", "gateway")
        messages = _counter("gateway_messages", "Messages that a gateway got from peers or gave them", *_WAYS)
        size = _counter("gateway_bytes", "Bytes that a gateway got from peers or gave them", *_WAYS)
        dropped = _counter("gateway_dropped", "What a gateway let fall, or whom it let go, by reason", *_REASON)
        links = self._daemon.links
        for report in links:
            name = report["gateway"]
            up.add_metric([name], int(report["up"]))
            peers.add_metric([name], report["peers_connected"] if report["up"] else 0)
            connects.add_metric([name], report["connects"])
            for way, key in (("in", "received"), ("out", "sent")):
                messages.add_metric([name, way], report[key])
                size.add_metric([name, way], report[f"{key}_bytes"])
            for reason, count in report["dropped"].items():
                dropped.add_metric([name, reason], count)
        starts = _counter("gateway_starts", "How often this daemon has started a gateway", "gateway")
        for name in links.expected:
            program = self._daemon.programs.get(name)
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
            "From the kernel's receive stamp to the clients' sockets, for the longest waiting datagram of each batch",
            buckets=buckets,
            sum_value=forward.sum,
        )


def _with_zeros(errors: dict[str, int]) -> dict[str, int]:
    """All reasons, also those that there have been none of."""
    return {**dict.fromkeys(ERROR_REASONS, 0), **errors}


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def _counter_of(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _gauges(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def pages(daemon: Observed) -> dict[str, Callable[[str], tuple[int, str, bytes]]]:
    """What programs ask the metrics listener for: ``/metrics`` and ``/healthz``; page.py has what people do."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(daemon))
    ProcessCollector(registry=registry)

    def metrics(accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(registry)

    def healthz(_accept: str) -> tuple[int, str, bytes]:
        return 200, "text/plain; charset=utf-8", b"ok\n"

    return {"/metrics": metrics, "/healthz": healthz}
