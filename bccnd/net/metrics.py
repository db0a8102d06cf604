"""What Prometheus and people see of the daemon.

Law: families are made when somebody asks, from plain integers that others own; labels come from the
configuration and from fixed lists, never from the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape
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

from bccnd.core.counters import LATENCY_BOUNDS, Histogram
from bccnd.core.dedup import Nameless, Sources
from bccnd.core.liveness import Liveness
from bccnd.core.repeat import Repeater
from bccnd.core.verdicts import NAMES
from bccnd.net.bus import Bus
from bccnd.net.segment import Segment
from bccnd.version import VERSION

PREFIX = "bccnd_"


class Observed(Protocol):
    """The daemon's state, as far as it is shown."""

    segments: list[Segment]
    bus: Bus
    sources: Sources
    nameless: Nameless
    liveness: Liveness
    repeater: Repeater
    forward: Histogram
    config_reloads: dict[str, int]
    taken_over: int
    state_dropped: int

    @property
    def not_kept(self) -> int: ...
    @property
    def subscriptions(self) -> int: ...
    @property
    def groups(self) -> Iterable[tuple[str, int, int]]: ...
    def now(self) -> float: ...


class DaemonCollector(Collector):
    """Makes the families of one daemon."""

    def __init__(self, daemon: Observed) -> None:
        self._daemon = daemon
        self._version = VERSION

    def collect(self) -> Iterator[Metric]:
        yield from self._segments()
        yield from self._sources()
        yield from self._bus()
        groups = _counter("channel_messages", "Accepted messages by configured channel group", "group")
        size = _counter("channel_bytes", "Accepted payload bytes by configured channel group", "group")
        for name, messages, total in self._daemon.groups:
            groups.add_metric([name], messages)
            size.add_metric([name], total)
        yield groups
        yield size
        reloads = _counter("config_reloads", "Reloads of the configuration by result", "result")
        for result, count in self._daemon.config_reloads.items():
            reloads.add_metric([result], count)
        yield reloads
        yield _gauge(
            "clients_taken_over", "Clients that were left by the daemon before this one", self._daemon.taken_over
        )
        unread = "Things left by the daemon before this one that were not understood"
        yield _counter_of("state_dropped", unread, self._daemon.state_dropped)
        yield _counter_of("clients_not_kept", "Clients that will not outlive a restart", self._daemon.not_kept)
        yield InfoMetricFamily(PREFIX + "build", "The running version", {"version": self._version})

    def _segments(self) -> Iterator[Metric]:
        received = _counter("datagrams_received", "Datagrams read from the segment's socket", "segment")
        judged = _counter("datagrams", "Datagrams by verdict; the sum equals the number read", "segment", "verdict")
        drops = _counter("socket_drops", "Datagrams the kernel dropped because the socket's buffer was full", "segment")
        sent = _counter("datagrams_sent", "Datagrams broadcast", "segment")
        errors = _counter("send_errors", "Datagrams that the kernel refused to send", "segment", "error")
        for segment in self._daemon.segments:
            counters = segment.counters
            received.add_metric([counters.name], counters.received)
            for name, count in zip(NAMES, counters.verdicts, strict=True):
                judged.add_metric([counters.name, name], count)
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
        forgotten.add_metric(["nameless_evicted"], self._daemon.nameless.evicted)
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
            ("client_errors", "Frames of clients that were refused, by reason", counters.errors),
        ):
            family = _counter(name, text, "reason")
            for reason, count in counts.items():
                family.add_metric([reason], count)
            yield family
        untold = "Control messages for a client that were dropped because its queue was full"
        yield _counter_of("control_dropped", untold, counters.untold)
        yield self._forward()

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


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def _counter_of(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def _gauge(name: str, text: str, value: int) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def pages(daemon: Observed) -> dict[str, Callable[[str], tuple[int, str, bytes]]]:
    """The pages of the metrics listener: ``/metrics``, ``/healthz`` and ``/``."""
    registry = CollectorRegistry()
    registry.register(DaemonCollector(daemon))
    ProcessCollector(registry=registry)

    def metrics(accept: str) -> tuple[int, str, bytes]:
        encode, kind = choose_encoder(accept)
        return 200, kind, encode(registry)

    def healthz(_accept: str) -> tuple[int, str, bytes]:
        return 200, "text/plain; charset=utf-8", b"ok\n"

    def status(_accept: str) -> tuple[int, str, bytes]:
        return 200, "text/html; charset=utf-8", _status(registry).encode()

    return {"/metrics": metrics, "/healthz": healthz, "/": status}


def _status(registry: CollectorRegistry) -> str:
    """The numbers that are not zero, as a page for people."""
    rows = []
    for family in registry.collect():
        for sample in family.samples:
            if sample.value and sample.name.startswith(PREFIX) and not sample.name.endswith(("_bucket", "_created")):
                labels = ", ".join(f"{name} {value}" for name, value in sample.labels.items())
                rows.append(
                    f"<tr title='{escape(family.documentation, quote=True)}'><th scope=row>"
                    f"{escape(sample.name.removeprefix(PREFIX))}<td>{escape(labels)}<td class=n>{sample.value:,.10g}"
                )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>bccnd</title><style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui;margin:2em}"
        "th{text-align:left;font-weight:normal}td,th{padding:.1em 1em .1em 0}.n{text-align:right}</style>"
        "<h1>bccnd</h1><p>What this daemon has counted since it started; zeros are left out. "
        "For Prometheus: /metrics; for a health check: /healthz.<table>" + "".join(rows) + "</table></html>"
    )
