"""The parts of the running daemon that its snapshot, its listings and its log are made from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bccnd.bus.host_reports import HostReports
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.bus.requests.recorder_reports import RecorderReports
from bccnd.bus.server import Bus
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.latency_histogram import LatencyHistogram
from bccnd.core.observing.loop_lag import LoopLag
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.sending.redundancy import Repeater
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import Liveness
from bccnd.core.trust.integrity_algorithms import KeyUse
from bccnd.log.handlers import LogLine
from bccnd.net.process_supervisor import ChildProcess
from bccnd.net.segment import Segment


class DaemonState(Protocol):
    """The daemon's state, as far as it is shown."""

    segments: list[Segment]
    routes: Routes[int]
    ingress: Ingress
    bus: Bus
    sources: TrackerTable
    anonymous: AnonymousDedup
    liveness: Liveness
    repeater: Repeater
    forward: LatencyHistogram
    loop_lag: LoopLag
    config_reloads: dict[str, int]
    links: GatewayLinks
    recorders: RecorderReports
    reports: HostReports
    taken_over: int
    state_dropped: int
    crashes: int
    #: since when the present keys are used (monotonic)
    keys_since: float

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
    def visitors_refused(self) -> dict[str, int]: ...
    @property
    def keys(self) -> Iterable[KeyUse]: ...
    @property
    def groups(self) -> Iterable[tuple[str, int, int]]: ...
    @property
    def host(self) -> str: ...
    @property
    def identity(self) -> bytes: ...
    @property
    def started(self) -> float: ...
    @property
    def recent_lines(self) -> Iterable[LogLine]: ...
    def carried(self) -> list[tuple[bytes, int, int]]: ...
    def now(self) -> float: ...
