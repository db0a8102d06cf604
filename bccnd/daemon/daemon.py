"""The daemon's composition root: builds the parts, runs them, and applies a changed configuration.

Invariant: whatever can fail at the start fails before the bus's socket appears, and leaves nothing behind. A reload
changes all that can change in place, or nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Final

from bccnd import log
from bccnd.bus.heartbeats import HeartbeatSender, LivenessAnnouncer
from bccnd.bus.host_reports import HostReports
from bccnd.bus.incoming.restart_backlog import Backlog
from bccnd.bus.incoming.segment_reader import SegmentReader
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.bus.requests.recorder_reports import RecorderReports
from bccnd.bus.server import Bus
from bccnd.config import Configuration, load
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counter_history import STEP
from bccnd.core.observing.counters import GroupCounters, NamedCounts
from bccnd.core.observing.latency_histogram import LatencyHistogram
from bccnd.core.observing.loop_lag import LoopLag
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.sending.redundancy import Repeater
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import Liveness
from bccnd.core.tracking.sender_counts import SenderTable
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity_algorithms import KeyUse
from bccnd.core.wire import frames
from bccnd.core.wire.identity_format import identity, tagged
from bccnd.daemon import takeover
from bccnd.daemon.background_loader import BackgroundLoader, Outcome
from bccnd.daemon.gateway_processes import GatewayProcesses
from bccnd.daemon.housekeeping import Housekeeping
from bccnd.daemon.rules import Rules, RulesInForce, make_rules, report_restart_keys
from bccnd.daemon.sockets import explain_exhaustion, open_entrances, open_segments
from bccnd.daemon.start_summary import integrity_summary, start_summary
from bccnd.errors import ConfigError
from bccnd.fleet.matrix import FleetMatrix
from bccnd.gateways.status import read_report
from bccnd.monitoring import metrics
from bccnd.monitoring.drop_reporter import DropReporter, report_identity_conflict, report_internal_error
from bccnd.monitoring.listings import Listings
from bccnd.monitoring.service_status import ServiceStatus
from bccnd.monitoring.status_page import PAGE_POLICY, StatusPage
from bccnd.net.http import REASONS, HttpServer
from bccnd.net.interface_watch import watch_interfaces
from bccnd.net.loop import READABLE, Loop
from bccnd.net.process_supervisor import ChildProcess
from bccnd.net.segment_opening import peer_name
from bccnd.net.service_manager import ServiceManager
from bccnd.net.socket_activation import ActivatedSockets
from bccnd.version import VERSION

#: seconds between two steps of what time alone changes, and between two where one step was not enough
SWEEP_INTERVAL: Final = 0.25
SWEEP_AGAIN: Final = 0.002
#: seconds between two readings of the drop counters, for the log
DROPS_INTERVAL: Final = 1.0
#: seconds after SIGTERM within which datagrams and frames that would be lost are still processed
STOP_TIME: Final = 0.6
#: seconds between two status lines for the service manager
STATUS_INTERVAL: Final = 10.0
#: the program part of this daemon's own identity
PROGRAM: Final = b"bccnd"


class Daemon:
    """One running daemon. Raises StartError if it cannot serve what is configured.

    ``sockets`` are those passed by socket units, ``manager`` is the service manager. Without ``gateways`` the
    configured gateways are services of their own.
    """

    def __init__(
        self,
        configuration: Configuration,
        path: str | None = None,
        sockets: ActivatedSockets | None = None,
        manager: ServiceManager | None = None,
        *,
        gateways: bool = True,
    ) -> None:
        self._path = path
        self._sockets = sockets or ActivatedSockets()
        self._manager = manager or ServiceManager()
        #: those that the process was started with
        self._settings = configuration.settings
        self.host = self._settings.host
        self._dialect = DIALECTS[self._settings.bus.dialect]
        self._perl_safe = self._settings.names == "perl-safe"
        self._make_identity = partial(identity, self.host.encode(), perl_safe=self._perl_safe)
        self.identity = self._make_identity(PROGRAM, os.getpid())
        self._make_rules = partial(make_rules, host=self.identity.partition(b"/")[0], dialect=self._dialect)
        self.started = time.time()
        self.config_reloads = {"applied": 0, "refused": 0}
        #: the first fault of the configuration that the last reload refused; empty if it was applied
        self.refused = ""
        #: clients restored from the daemon before this one, things dropped because they were not understood, and
        #: whether that daemon has crashed
        self.taken_over = self.state_dropped = self.crashes = 0
        #: the last lines of the log, the latest first
        self.recent_lines = log.keep_recent()
        with ExitStack() as cleanup:
            with explain_exhaustion():
                self._build(configuration, cleanup, external_gateways=not gateways)
            self._cleanup = cleanup.pop_all()

    # -- building

    def _build(self, configuration: Configuration, cleanup: ExitStack, *, external_gateways: bool) -> None:
        cleanup.callback(self.recent_lines.close)
        self._open_loop(cleanup, shared_file=not external_gateways)
        self._open_state(cleanup)
        self.rules = RulesInForce(self._make_rules(configuration))
        self._receive(cleanup)
        self._send()
        self._observe(cleanup)
        self._serve_clients(configuration, cleanup)
        self._gateways = GatewayProcesses(self.loop, self.links, self._path, external=external_gateways)
        cleanup.callback(self._gateways.close)
        self._apply(self.rules.current)
        self._restore()

    def _open_loop(self, cleanup: ExitStack, *, shared_file: bool) -> None:
        self.loop = Loop()
        self._housekeeping = Housekeeping(self.loop)
        cleanup.callback(self.loop.close)
        self._loader = BackgroundLoader(self.loop, partial(load, self._path, shared=shared_file), self._on_loaded)
        cleanup.callback(self._loader.close)
        # From now on a signal waits for the loop to run.
        self.loop.on_signal(signal.SIGTERM, self._on_stop)
        self.loop.on_signal(signal.SIGINT, self._on_stop)
        self.loop.on_signal(signal.SIGHUP, self._on_hangup)

    def _open_state(self, cleanup: ExitStack) -> None:
        """Open the descriptor store, and read what the daemon before this one has left there."""
        cleanup.callback(self._manager.close)
        cleanup.callback(self._sockets.close)
        self._store = takeover.open_store(self._manager, self._sockets, self._settings.bus.max_clients)
        if self._store is not None:
            cleanup.push(self._store)
        self._left = takeover.read_left(self._store, monotonic=self._settings.dedup.freshness == "monotonic")

    def _receive(self, cleanup: ExitStack) -> None:
        """Open the segments, and make the parts that judge their datagrams."""
        settings, rules = self._settings, self.rules.current
        senders = SenderTable(self._max_hosts, round(self.started * 1000))
        self.sources = TrackerTable(TrackerLimits(**rules.dedup), senders)
        self.anonymous = AnonymousDedup(self.sources.limits)
        self.liveness = Liveness(self.sources, rules.heartbeat, time.monotonic())
        self.routes: Routes[int] = Routes(self._dialect)
        self.ingress = Ingress(
            rules.checker,
            self.sources,
            self.anonymous,
            self.routes,
            ceiling=settings.max_datagram,
            # These two publish on the bus, which is made later.
            on_heartbeat=lambda src, now: self._announcer.on_heartbeat(src, now),
            on_report=lambda *report: self.reports.on_report(*report),
            on_conflict=report_identity_conflict,
            on_bug=report_internal_error,
            host=self.identity.partition(b"/")[0],
        )
        self._groups: dict[str, str] = {}
        self.segments = open_segments(self._sockets, settings, cleanup, partial(takeover.logged_drops, self._left))

    def _send(self) -> None:
        """Make the parts that build datagrams of local messages, and that broadcast them."""
        rules, store = self.rules.current, self._store
        self.repeater = Repeater(rules.repeat, self.sources.limits)
        first, reserve = (0, None) if store is None else (store.ceiling, store.raise_ceiling)
        self._builder = DatagramBuilder(
            rules.checker, self.sources, perl_safe=self._perl_safe, first_seq=first, reserve=reserve
        )

    def _observe(self, cleanup: ExitStack) -> None:
        """Make the parts that measure and show, and open the listeners of metrics and status page."""
        self.forward = LatencyHistogram()
        self.loop_lag = LoopLag()
        self.recorders = RecorderReports()
        self._drop_reporter = DropReporter(self)
        self._listings = Listings(self)
        self._page = StatusPage(self)
        self._service_status = ServiceStatus(self)
        self._visitors = NamedCounts(REASONS)
        settings = self._settings.metrics
        listeners = self._sockets.open_metrics(settings.listen)
        self._metrics_urls = [f"http://{peer_name(listener.getsockname())}/" for listener in listeners]
        pages = {**metrics.pages(self), **self._page.pages()} if listeners else {}
        for listener in listeners:
            server = HttpServer(self.loop, listener, pages, self._visitors.add, settings.hosts, policy=PAGE_POLICY)
            cleanup.callback(server.close)

    def _serve_clients(self, configuration: Configuration, cleanup: ExitStack) -> None:
        """Open the bus, and make what publishes on it; the last, so that a client finds a daemon that can start."""
        self.bus = Bus(
            self.loop,
            open_entrances(self._sockets, configuration, cleanup),
            self.routes,
            self._make_identity,
            partial(tagged, perl_safe=self._perl_safe),
            self.rules,
            builder=self._builder,
            segments=[segment.sender for segment in self.segments],
            repeater=self.repeater,
            listings=self._listings.by_name(),
            trace=self._listings.trace,
            recorders=self.recorders,
            store=self._store,
        )
        cleanup.callback(self.bus.close)
        self._heartbeats = HeartbeatSender(self.loop, self.bus, self.identity)
        matrix = FleetMatrix(self._max_hosts, time.monotonic())
        self.reports: HostReports = HostReports(
            self.loop, self.bus, self._builder, self.sources, matrix, self.identity, VERSION
        )
        self._announcer: LivenessAnnouncer = LivenessAnnouncer(
            self.loop, self.liveness, self.bus, self._page.collector.update_sources
        )
        self.links: GatewayLinks = GatewayLinks(
            self.ingress,
            self.bus.fanout,
            frames.LINKS,
            read_report,
            self.bus.publisher.send,
            copies=len(self.segments),
        )
        self.bus.requests.links = self.links

    def _apply(self, rules: Rules) -> None:
        """Pass the rules to the parts that keep a copy of some of them. Must not raise."""
        self.ingress.checker = self._builder.checker = rules.checker
        self.keys_since = time.monotonic()
        self.sources.limits.refresh(**rules.dedup)
        self.liveness.rules = rules.heartbeat
        self.repeater.rules = rules.repeat
        self.bus.apply_rules()
        groups = rules.settings.metrics.groups
        if groups != self._groups:
            self._groups = groups
            counters = GroupCounters(groups)
            counters.adopt(self.ingress.groups)
            self.ingress.set_groups([pattern.encode() for pattern in groups.values()], counters)

    def _max_hosts(self) -> int:
        """Return the cap on hosts that are counted as senders, and on hosts that report."""
        return self.rules.current.settings.reports.max_hosts

    def _apply_to_services(self, rules: Rules) -> None:
        """Start, change or end heartbeats, reports and gateways. Must not raise."""
        self._heartbeats.set_interval(rules.heartbeat.interval)
        self.reports.set_interval(rules.report_interval)
        self._gateways.apply(rules.settings)

    def _restore(self) -> None:
        """Take over from the daemon before this one, if there is something to take over."""
        store, left = self._store, self._left
        takeover.resume_sources(left, self.sources, self.anonymous, self.liveness)
        self._builder.open(self.identity)
        self._drop_reporter.start()
        self._tracker_writer = None
        if store is not None:
            takeover.restore(left, store, self.bus, self.sources, self.repeater, self.ingress)
            self.taken_over, self.state_dropped = len(self.bus.clients), len(store.dropped)
            self.crashes = int(left.after_crash)
            self._tracker_writer = takeover.TrackerWriter(self.loop, store, self.sources)
        self._left = takeover.Left()  # it holds all that had waited
        self._readers = [SegmentReader(one, self.ingress, self.bus.fanout, self.forward) for one in self.segments]

    # -- running

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self.begin()
        try:
            self.loop.run()
            self.finish()
        finally:
            # The process is ending: a second signal must not turn a clean end into a death by signal.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self.close()
        log.event("stopped", "stopped")

    def begin(self) -> None:
        """Report that the daemon is ready; it serves as soon as the loop runs."""
        loop = self.loop
        if self._store is not None:
            self._store.discard_images()
        if self.crashes:
            self.ingress.own_until_ns = time.time_ns()
        patience = self.rules.bus.patience if self.taken_over else 0.0
        Backlog(loop, self.bus.queues, patience, self._watch).read(self._readers)
        watch_interfaces(loop, self.segments, self._readers, self._watch)
        self._sweep()
        self._page.collector.start()
        tasks = self._housekeeping
        tasks.every(DROPS_INTERVAL, self._drop_reporter.report)
        tasks.every(STEP, self._page.collector.sample)
        tasks.every(STATUS_INTERVAL, lambda: self._manager.status(self._service_status.line()))
        tasks.every(STATUS_INTERVAL, self.reports.sweep)
        tasks.every(STATUS_INTERVAL, self._listings.read_key_uses)
        if self._tracker_writer is not None:
            tasks.every(takeover.TRACKERS_INTERVAL, self._tracker_writer.begin)
        self._manager.attach(loop)
        tasks.order_memory()
        summary = start_summary(self._settings, self.segments, self._metrics_urls, self._sockets)
        log.event("ready", f"ready: {summary}", version=VERSION)
        self._manager.ready(self._service_status.line())
        self._apply_to_services(self.rules.current)

    def finish(self) -> None:
        """Process what has arrived, once the loop has stopped."""
        self._read_remaining()
        self.reports.end()
        self.bus.close()  # counts what waited for clients that are still connected
        self._drop_reporter.report()
        if self._store is not None:
            parts = self.bus, self.sources, self.anonymous, self.liveness, self.repeater, self.ingress, self.segments
            self._store.write_image(takeover.image(*parts))

    def close(self) -> None:
        """Close everything that was opened."""
        self._cleanup.close()

    def _watch(self, reader: SegmentReader) -> None:
        self.loop.watch(reader.fileno(), READABLE, reader)

    def _sweep(self) -> None:
        """Expire what is too old, in steps short enough to delay no datagram noticeably."""
        now = time.monotonic()
        more = [self.sources.sweep(now), self.liveness.sweep(now), self.ingress.sweep(now)]
        if self.liveness.changes:
            self._announcer.announce()
        pause = SWEEP_AGAIN if any(more) else SWEEP_INTERVAL
        self.loop_lag.observe(now, pause)
        self.loop.later(pause, self._sweep)

    def _read_remaining(self) -> None:
        """Process what the next daemon does not get: datagrams (passed sockets keep theirs), and without a descriptor
        store frames, clients' queues and copies."""
        deadline = time.monotonic() + STOP_TIME
        self.bus.acceptor.stop()
        for segment, reader in zip(self.segments, self._readers, strict=True):
            while not segment.passed and time.monotonic() < deadline - STOP_TIME / 2 and reader.read_available():
                pass
        self.bus.finish(deadline)
        if self._store is None:
            self.bus.publisher.send_remaining_copies()

    def _on_stop(self) -> None:
        self._manager.stopping()
        self.loop.stop()

    def _on_hangup(self) -> None:
        self._manager.reloading()
        self._loader.start()

    def _on_loaded(self, outcome: Outcome) -> None:
        self.reload(outcome)
        self._manager.ready(self._service_status.line())

    # -- reloading

    def reload(self, loaded: Outcome) -> None:
        """Apply a configuration that was loaded; a bad one changes nothing."""
        try:
            configuration = loaded()
            rules = self._make_rules(configuration)
        except ConfigError as error:
            self._refuse(str(error.faults[0]))
            text = f"reload refused, nothing has changed:\n{error}"
            log.event("reload_refused", text, remedy=error.faults[0].remedy, reason=error.reason)
            return
        except Exception as error:  # noqa: BLE001 - the daemon goes on with the configuration that it has
            self._refuse(str(error))
            log.bug("reload refused, nothing has changed: the configuration could not be loaded")
            return
        report_restart_keys(self._settings, rules.settings)
        if not rules.report_interval:  # the last report is signed with the key that other hosts know
            self.reports.set_interval(0.0)
        rules.checker.adopt_counts(self.ingress.checker)
        self.rules.replace(rules)
        self._apply(rules)
        self._apply_to_services(rules)
        self.config_reloads["applied"] += 1
        self.refused = ""
        self._housekeeping.tidy_memory()
        log.event("reload_applied", f"reloaded: {integrity_summary(configuration)}")

    def _refuse(self, why: str) -> None:
        self.config_reloads["refused"] += 1
        self.refused = f"reload refused: {why}"

    # -- shown by metrics, status page and listings

    def now(self) -> float:
        return time.monotonic()

    def carried(self) -> list[tuple[bytes, int, int]]:
        return self.routes.carried()

    @property
    def keys(self) -> list[KeyUse]:
        return self.ingress.checker.list_keys()

    @property
    def gateway_processes(self) -> dict[str, ChildProcess]:
        return self._gateways.by_name

    @property
    def clients_not_kept(self) -> int:
        return 0 if self._store is None else self._store.not_stored

    @property
    def sources_not_kept(self) -> int:
        return 0 if self._store is None else self._store.failed_writes

    @property
    def notifications_lost(self) -> int:
        return self._manager.lost

    @property
    def subscriptions(self) -> int:
        return self.routes.subscriptions

    @property
    def visitors_refused(self) -> dict[str, int]:
        return self._visitors.all()

    @property
    def groups(self) -> Iterable[tuple[str, int, int]]:
        return self.ingress.groups.all()
