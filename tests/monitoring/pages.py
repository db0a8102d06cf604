"""The part of a daemon that metrics and the status page show, made of the real parts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, cast

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families as read_plain

from bccnd.bus.host_reports import HostReports
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.bus.requests.recorder_reports import RecorderReports
from bccnd.bus.server import Bus
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.observing.counter_history import STEP
from bccnd.core.observing.latency_histogram import LatencyHistogram
from bccnd.core.observing.loop_lag import LoopLag
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.sending.redundancy import Repeater, RepeatRules
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import HeartbeatRules, Liveness
from bccnd.core.trust.integrity import make_checker
from bccnd.core.trust.integrity_algorithms import KeyUse
from bccnd.drop_catalog.entry import PREFIX
from bccnd.fleet.matrix import FleetMatrix
from bccnd.gateways.status import read_report
from bccnd.log.handlers import LogLine
from bccnd.monitoring import metrics
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.status_collector import StatusCollector
from bccnd.net.http import REASONS, Answer, Job
from bccnd.net.process_supervisor import ChildProcess
from bccnd.net.segment import Segment, SegmentOptions
from bccnd.snapshot import DropState, HostStatus
from tests.support import BROADCAST, Hub, free_port

#: a name that tries to break out of its quotes
HOSTILE = "a\"b\\c\n<script>alert('x')</script>}"


def finished(answer: Answer | Job) -> Answer:
    """Return a page, all steps of it made."""
    while not isinstance(answer, tuple):
        answer = answer.step() or answer
    return answer


class Observed:
    """The state that metrics show."""

    host = "relay01"
    identity = b"relay01/bccnd/1"
    started = 0.0

    def __init__(self, hub: Hub, segments: list[Segment]) -> None:
        self.hub = hub
        self.segments = segments
        self.bus: Bus = hub.bus
        self.sources: TrackerTable = hub.sources
        self.anonymous = AnonymousDedup(self.sources.limits)
        self.liveness = Liveness(self.sources, HeartbeatRules(), 0.0)
        self.repeater = Repeater(RepeatRules([], DIALECTS["path"]), self.sources.limits)
        self.forward = LatencyHistogram()
        self.loop_lag = LoopLag()
        self.refused = ""
        self.keys = [KeyUse("00112233aabbccdd", "hmac", True, (), 12)]
        self.config_reloads = {"applied": 1, "refused": 2}
        ingress = Ingress(make_checker("none", ()), hub.sources, self.anonymous, hub.routes)
        self.links = GatewayLinks(
            ingress,
            hub.bus.fanout,
            ["nng"],
            read_report,
            lambda _datagram: None,
            copies=1,
        )
        self.links.expected = ["nng", "broker"]
        self.recorders = RecorderReports()
        self.reports = HostReports(
            hub.loop,
            hub.bus,
            hub.builder,
            hub.sources,
            FleetMatrix(lambda: 10, 0.0),
            b"relay01/bccnd/1",
            "1.0.0",
        )
        self.gateway_processes: dict[str, ChildProcess] = {}
        self.taken_over = 3
        self.state_dropped = 4
        self.crashes = 1
        self.sources_not_kept = 9
        self.clients_not_kept = 5
        self.visitors_refused = dict(zip(REASONS, (6, 0, 7, 9, 0, 0), strict=True))
        self.notifications_lost = 8
        self.clock = 1000.0

    @property
    def subscriptions(self) -> int:
        return self.hub.routes.subscriptions

    @property
    def groups(self) -> Iterable[tuple[str, int, int]]:
        return [("cardsys", 3, 300), ("logs", 0, 0)]

    def now(self) -> float:
        return self.clock

    def page(self, path: str, accept: str = "") -> tuple[int, str, str]:
        status, kind, body = finished(metrics.pages(cast(DaemonState, self))[path](accept))
        return status, kind, body.decode()

    def families(self) -> dict[str, Metric]:
        """The exposition as Prometheus reads it, by name of the family."""
        return {family.name: family for family in read_plain(self.page("/metrics")[2])}

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Values by name and labels, the prefix taken off; no series stands twice."""
        found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families().values():
            for sample in family.samples:
                place = sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())
                assert place not in found
                found[place] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[name, frozenset(labels.items())]


def open_segment(name: str) -> Segment:
    return Segment(SegmentOptions(name, BROADCAST, free_port(), bind="0.0.0.0", receive_buffer=65_536, largest=1500))


class Daemon(Observed):
    """The state that the status page shows; tests move its ``clock``."""

    host = "relay<01>"

    def __init__(self, hub: Hub, segment: Any) -> None:
        super().__init__(hub, [segment])
        self.links.expected = []
        self.started = time.time()
        self.recent_lines: Iterable[LogLine] = []
        self.channels: list[tuple[bytes, int, int]] = []
        self.collector = StatusCollector(cast(DaemonState, self))

    def carried(self) -> list[tuple[bytes, int, int]]:
        carried, self.channels = self.channels, []
        return carried

    def begin(self) -> None:
        self.collector.start()

    def go_on(self, seconds: float) -> None:
        """Let time pass, with a sample every few seconds."""
        until = self.clock + seconds
        while self.clock + STEP <= until:
            self.clock += STEP
            self.collector.sample()
        self.clock = until

    def facts(self) -> HostStatus:
        return self.collector.collect()

    def drop(self, name: str) -> DropState:
        (found,) = [one for one in self.facts().drops if one.name == name]
        return found
