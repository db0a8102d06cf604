"""The daemon: the only place where its parts are wired together.

Law: everything that can fail at the start fails before the bus's socket appears, and leaves nothing behind; from
then on a reload changes all that can change in place or nothing at all.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from bccnd import log
from bccnd.bus.access import Access, Admission, Rule, by_mode, everybody
from bccnd.bus.backlog import Backlog
from bccnd.bus.fanout import BusLimits
from bccnd.bus.gateway_links import GatewayLinks
from bccnd.bus.recorder_reports import RecorderReports
from bccnd.bus.segment_reader import SegmentReader
from bccnd.bus.server import AFTER_REFUSAL, Bus, Entrance
from bccnd.config import Configuration, SegmentSettings, Settings, SocketSettings, load
from bccnd.core import frames
from bccnd.core.address import read_address
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.counter_history import STEP
from bccnd.core.counters import Histogram, SegmentCounters
from bccnd.core.dedup import DedupRules, TrackerTable
from bccnd.core.drop_summary import TALLY
from bccnd.core.egress import Egress
from bccnd.core.identity import identity, tagged, token
from bccnd.core.ingress import Ingress
from bccnd.core.integrity import IntegrityChecker, KeyUse, make_checker
from bccnd.core.liveness import HEARTBEAT, STATE_NAMES, USUAL_INTERVAL, Liveness, LivenessRules
from bccnd.core.loop_lag import LoopLag
from bccnd.core.patterns import DIALECTS
from bccnd.core.quota import UserLimits
from bccnd.core.redundancy import Repeater, RepeatRule
from bccnd.core.routes import Routes
from bccnd.core.trace import trace
from bccnd.core.tracker_log import TrackerLog, replay
from bccnd.core.verdicts import NAMES
from bccnd.errors import ConfigError
from bccnd.gateways.names import NAMES as GATEWAYS
from bccnd.gateways.report import no_report, read_report
from bccnd.handover.restore import Handover
from bccnd.monitoring import metrics
from bccnd.monitoring.drop_reporter import DropReporter
from bccnd.monitoring.status_page import StatusPage
from bccnd.native import scan
from bccnd.native.inflight_layout import DATAGRAMS, InflightInput
from bccnd.native.inflight_layout import was_cast as was_cast_before
from bccnd.net.child_process import ChildProcess, python
from bccnd.net.http import REASONS as VISITORS
from bccnd.net.http import HttpServer
from bccnd.net.loop import READABLE, Loop, Timer
from bccnd.net.peer import MAX_PROGRAM
from bccnd.net.segment import Peers, Segment, SegmentOptions
from bccnd.net.service_manager import Manager
from bccnd.net.socket_activation import ActivatedSockets
from bccnd.net.udp import peer_name
from bccnd.version import VERSION

#: seconds between two looks at what time alone changes
SWEEP: Final = 0.25
#: seconds until the next look where one look was not enough
SWEEP_ON: Final = 0.002
#: seconds between two looks at the kernel's drop counts, for the log; metrics ask the kernel themselves
WATCH_DROPS: Final = 1.0
#: seconds between two looks for garbage that refers to itself
TIDY: Final = 60.0
#: seconds that SIGTERM leaves for what is under way
DRAIN: Final = 0.6
#: seconds between two statuses for the service manager
TELL: Final = 10.0
#: seconds within which gateways that somebody else starts have called
CALLED: Final = 30.0
#: sources that `bccn sources` can show
MAX_LISTED: Final = 10_000
#: seconds until what is known of sources is written down anew, when that has failed
SHORTEST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
#: receivers that a trace names
MAX_TRACED: Final = 100
#: bytes of a datagram that has met a bug which are kept for who looks for it
MAX_SHOWN: Final = 2048
#: what this daemon is called on the segment, behind the host
PROGRAM: Final = b"bccnd"


class Daemon:
    """One running daemon. Raises StartError from the constructor when it cannot serve what is configured.

    ``sockets`` are those that somebody has opened for us, ``manager`` is who wants to know how we are; ``gateways``:
    whether those of the configuration are ours to start.
    """

    def __init__(
        self,
        configuration: Configuration,
        path: str | None = None,
        sockets: ActivatedSockets | None = None,
        manager: Manager | None = None,
        *,
        gateways: bool = True,
    ) -> None:
        settings = configuration.settings
        self._sockets = sockets or ActivatedSockets()
        self._manager = manager or Manager()
        #: what is wrong with the configuration that a reload has refused last
        self._refused = ""
        self._told = (time.monotonic(), 0)
        self._path = path
        #: what sockets and names were made from, until the next start
        self._settings = settings
        self._groups = settings.metrics.groups
        self._heartbeat = settings.heartbeat.interval
        self._started = time.time()
        #: what recorders have told of what they do not keep
        self.recorders = RecorderReports()
        self._drop_log = DropReporter(self)
        self.forward = Histogram()
        self.loop_lag = LoopLag()
        self.config_reloads = {"applied": 0, "refused": 0}
        #: clients that were left to us, and things that we did not understand of what was
        self.taken_over = 0
        self.state_dropped = 0
        #: how often what is known of sources could not be written down for the next daemon
        self.sources_not_kept = 0
        #: when the next file of annals may be begun (monotonic), and the pause after one that cannot be written
        self._annals_again = 0.0
        self._annals_pause = SHORTEST_PAUSE
        #: those who came to the metrics listener in vain, by reason
        self.visitors_refused = dict.fromkeys(VISITORS, 0)
        perl_safe = settings.names == "perl-safe"
        self._identify = partial(identity, settings.host.encode(), perl_safe=perl_safe)
        self._identity = self._identify(PROGRAM, os.getpid())
        #: since when the keys are in force (monotonic)
        self._keys_since = time.monotonic()
        checker = self._checker(configuration)
        self.sources = TrackerTable(_dedup_rules(settings))
        self.liveness = Liveness(self.sources, _liveness_rules(settings), time.monotonic())
        self.anonymous = AnonymousDedup(settings.dedup.horizon)
        dialect = DIALECTS[settings.bus.dialect]
        self._routes: Routes[int] = Routes(dialect)
        self._ingress: Ingress = Ingress(
            checker,
            self.sources,
            self.anonymous,
            self._routes,
            ceiling=settings.max_datagram,
            on_heartbeat=self._on_heartbeat,
            on_conflict=self._on_conflict,
            on_bug=self._on_bug,
        )
        self._ingress.max_age_ns = int(settings.dedup.horizon * 1e9)
        self._egress = Egress(checker, self.sources, perl_safe=perl_safe)
        self._egress.open(self._identity)
        self.repeater = Repeater([], dialect, settings.dedup.horizon)
        self._repeat_at: Timer | None = None
        self._beat_at: Timer | None = None
        self._put_repeats_in_force(settings)
        self._set_groups(settings.metrics.groups)
        self.segments: list[Segment] = []
        self._starts_gateways = gateways
        #: what each gateway was last started with
        self._gateways: dict[str, object] = {}
        self.programs: dict[str, ChildProcess] = {}
        self.links: GatewayLinks
        #: the last lines of our log, the latest first
        self.said = log.keep_recent()
        self._page = StatusPage(self)
        with ExitStack() as undo:
            self._open(configuration, undo)
            self._close = undo.pop_all()

    def _open(self, configuration: Configuration, undo: ExitStack) -> None:
        undo.callback(self.said.close)
        settings = configuration.settings
        self.loop = Loop()
        undo.callback(self.loop.close)
        # From now on a signal waits for the loop, so that none finds us half open.
        self.loop.on_signal(signal.SIGTERM, self._on_stop)
        self.loop.on_signal(signal.SIGINT, self._on_stop)
        self.loop.on_signal(signal.SIGHUP, self._on_hangup)
        undo.callback(self._manager.close)
        undo.callback(self._sockets.close)
        self._handover = None
        if self._manager.listens:
            self._handover = Handover(self._manager, self._sockets.stored, self.loop.soon)
            needed = 2 * settings.bus.max_clients + 8
            if 0 < self._manager.room < needed:
                log.event(
                    "doubtful_setting",
                    f"bus.max_clients: systemd keeps {self._manager.room} descriptors for this daemon, and so many "
                    f"clients need {needed}: those beyond will notice a restart",
                    remedy=f"set FileDescriptorStoreMax={needed} in the unit, or lower bus.max_clients",
                    setting="bus.max_clients",
                )
        else:  # nobody who would keep them for another one
            for _, descriptor in self._sockets.stored:
                os.close(descriptor)
        segments = [_segment_options(each, settings.max_datagram) for each in settings.segments]
        self._sockets.assign(
            [one.path for one in settings.bus.all_sockets], segments, metrics=settings.metrics.listen is not None
        )
        for options in segments:
            segment = self._sockets.open_segment(options)
            undo.callback(segment.close)
            self.segments.append(segment)
            # What was dropped before us was said by the daemon before us, or is said by the segment.
            log.repeats.growth(("socket_drops", "socket_drops", options.name), segment.kernel_drops())
            for warning in segment.warnings:
                text, _, remedy = warning.partition(". Remedy: ")
                name = segment.options.name
                log.event("doubtful_setting", text, remedy=remedy, setting="segments.receive_buffer", segment=name)
        listeners = self._sockets.open_metrics(settings.metrics.listen)
        self._visited = [f"http://{peer_name(listener.getsockname())}/" for listener in listeners]
        for listener in listeners:
            pages = {**metrics.pages(self), **self._page.pages()}
            hosts = settings.metrics.hosts
            undo.callback(HttpServer(self.loop, listener, pages, self.visitors_refused, hosts).close)
        entrances = [self._open_socket(one, configuration.gids, undo) for one in settings.bus.all_sockets]
        self.bus = Bus(
            self.loop,
            entrances,
            self._routes,
            self._identify,
            partial(tagged, perl_safe=settings.names == "perl-safe"),
            self._access(configuration),
            _bus_limits(settings),
            egress=self._egress,
            broadcast=self._broadcast,
            listings={
                b"sources": self._list_sources,
                b"daemon": self._describe,
                b"gateways": lambda: iter(self.links),
                b"keys": lambda: (key._asdict() for key in self.keys),
            },
            trace=self._trace,
            on_link=lambda payload: self.links.bring(payload),
            on_report=lambda client, report: self.links.report(client, report),
            on_recorder=self.recorders.report,
            handover=self._handover,
        )
        undo.callback(self.bus.close)
        self.links = GatewayLinks(
            self._ingress,
            self.bus.fanout,
            frames.LINKS,
            read_report,
            no_report,
            self._send,
            copies=len(self.segments),
            inflight=None if self._handover is None else self._handover.inflight,
        )
        undo.callback(self._leave_gateways)
        if self._handover is not None:
            self._take_over(self._handover)
        inflight = None if self._handover is None else self._handover.inflight
        self._intakes = [
            SegmentReader(segment, self._ingress, self.bus.fanout, self.forward, inflight, self._ingress.tracker_log)
            for segment in self.segments
        ]

    def _take_over(self, handover: Handover) -> None:
        """Go on where the daemon before us ended, and see to it that the next one can."""
        unfinished = handover.unfinished
        # What is made now stays; there is nothing to be found in it.
        gc.disable()
        found = replay(
            handover.take_tracker_logs(),
            self.sources,
            self.anonymous,
            self.liveness,
            now=time.monotonic(),
            clock_us=time.time_ns() // 1000,
            skip_serial=unfinished.serial if unfinished is not None else 0,
        )
        tracker_log = TrackerLog(
            self.sources, self.anonymous, self.liveness, handover.new_tracker_log(), time.monotonic()
        )
        self._ingress.tracker_log = tracker_log
        of_a_client = unfinished is not None and unfinished.kind != DATAGRAMS
        for number, segment in enumerate(self.segments):
            was_cast = of_a_client and was_cast_before(handover.inflight.memory, number)
            segment.send_through(handover.inflight, number, was_cast=was_cast)
        had = self.bus.restore()
        if unfinished is not None:
            self.bus.replay_input(unfinished, had, partial(self._feed_again, tracker_log))
        for number, segment in enumerate(self.segments):
            segment.receive_into(handover.inflight, number)
        # Else one daemon after the other that dies early would leave a file, and each would read them all.
        while self._keep_annals(handover, tracker_log, time.monotonic()):
            pass
        self.taken_over = len(self.bus.clients)
        lost = [*handover.dropped, *found.doubts]
        self.state_dropped = len(lost)
        for what in lost:
            text = f"left out of what the daemon before this one has left, as it is not understood: {what}"
            log.event("state_dropped", text, reason=what, drop="state_dropped")
        if handover.clients or found.records:
            rest = "" if unfinished is None else ", and what was being worked on"
            what = f"{_counted(self.taken_over, 'client')}, {_counted(found.sources, 'source')}{rest}"
            log.event("taken_over", f"taken over: {what}", count=self.taken_over)

    def _feed_again(self, tracker_log: TrackerLog, unfinished: InflightInput) -> None:
        """Have datagrams judged and delivered that the daemon before us had received."""
        segment = next((one for one in self.segments if one.options.name.encode() == unfinished.label), None)
        counters = SegmentCounters(unfinished.label.decode(errors="replace")) if segment is None else segment.counters
        peers = Peers.of(memoryview(unfinished.names), unfinished.name_size)
        wall = time.time_ns()
        stamps = [unfinished.stamps[0] or wall, *unfinished.stamps[1:]]
        now = unfinished.now or time.monotonic() - max(0, wall - stamps[0]) * 1e-9
        tracker_log.serial = unfinished.serial
        self.bus.deliver(self._ingress.feed_late(counters, list(unfinished.datagrams), peers, now, stamps))

    def _keep_annals(self, handover: Handover, tracker_log: TrackerLog, now: float) -> bool:
        """Write down what time has done; True when there is more to be done now."""
        more = tracker_log.step(now)
        if tracker_log.complete:
            handover.drop_old_tracker_logs()
            self._annals_pause = SHORTEST_PAUSE
        failed = tracker_log.failed
        if now < self._annals_again or not (tracker_log.due or failed):
            return more
        try:
            tracker_log.rotate(handover.new_tracker_log())
            failed = failed or tracker_log.failed
        except OSError as error:
            failed = error.strerror or str(error)
        if failed:
            self._annals_again = now + self._annals_pause
            self._annals_pause = min(2 * self._annals_pause, LONGEST_PAUSE)
            self.sources_not_kept += 1
            log.event(
                "not_kept",
                f"what is known of sources will not outlive a restart of this daemon: {failed}",
                about="annals",
                remedy="raise LimitNOFILE=, LimitFSIZE= or MemoryMax= of the service",
                error=failed,
                drop="sources_not_kept",
            )
        return more

    def _open_socket(self, settings: SocketSettings, gids: dict[str, int], undo: ExitStack) -> Entrance:
        address = read_address(settings.path)
        gid = gids[settings.group] if settings.group is not None else None
        listener, ours = self._sockets.open_bus(settings.path, settings.mode, gid)
        if ours and isinstance(address, str):
            undo.callback(_remove_socket, address, os.stat(address).st_ino)
        undo.callback(listener.close)
        admits: Admission = everybody
        if isinstance(address, bytes):
            admits = by_mode(settings.mode, os.geteuid(), os.getegid() if gid is None else gid)
        return Entrance(listener, DIALECTS[settings.dialect], admits)

    def _access(self, configuration: Configuration) -> Access:
        rules = [
            Rule(
                uid=configuration.uids[rule.user] if rule.user is not None else None,
                gid=configuration.gids[rule.group] if rule.group is not None else None,
                program=token(rule.program.encode(), MAX_PROGRAM) if rule.program is not None else None,
                publish=_encoded(rule.publish),
                subscribe=_encoded(rule.subscribe),
                tap=rule.tap,
                tag=rule.tag,
                link=rule.link,
            )
            for rule in configuration.settings.access
        ]
        return Access(rules, DIALECTS[self._settings.bus.dialect], os.geteuid(), os.getegid())

    # -- the way of a datagram

    def _broadcast(self, chan: bytes, datagram: bytes) -> str | None:
        """Send a datagram for the first time, and see to the copies that are to follow."""
        failed = self._send(datagram)
        if self.repeater.add(chan, datagram, time.monotonic()):
            self._repeat()
        return failed

    def _send(self, datagram: bytes) -> str | None:
        failed = None
        for segment in self.segments:
            error = segment.broadcast(datagram)
            if error is not None:
                failed = error
                name = segment.options.name
                log.event(
                    "send_failed",
                    f"segment {name}: cannot broadcast: {error}",
                    about=f"send/{name}/{error}",
                    remedy="see whether the interface is up and has an address (ip address), whether there is a route "
                    "(ip route), and whether a firewall refuses it (nft list ruleset)",
                    segment=name,
                    error=error,
                    drop="send_errors",
                )
        return failed

    def _repeat(self) -> None:
        """Send the copies that are due, and be here again for the next one."""
        for datagram in self.repeater.due(time.monotonic()):
            self._send(datagram)
        due = self.repeater.next_due
        if due is not None and self._repeat_at is None:
            self._repeat_at = self.loop.later(max(0.0, due - time.monotonic()), self._on_repeat)

    def _on_repeat(self) -> None:
        self._repeat_at = None
        self._repeat()

    def _beat(self) -> None:
        """Send our own heartbeat, and be here again when the next one is due."""
        interval = self._heartbeat
        if interval:
            self._beat_at = self.loop.later(interval, self._beat)
            chan = HEARTBEAT + self._identity
            refused = self.bus.publish(self._identity, chan, b"", frames.message(chan, b""))
            if refused and refused != "send_failed":  # that is counted, and said, where it happens
                errors = self.bus.counters.errors
                errors[refused] = errors.get(refused, 0) + 1
                remedy = AFTER_REFUSAL[refused][1] if refused in AFTER_REFUSAL else "set heartbeat.interval: 0"
                text = "our own heartbeats cannot be sent"
                log.event("dropped", text, about=("beat", refused), remedy=remedy, drop=refused)

    def _on_heartbeat(self, src: bytes, now: float) -> None:
        waiting = bool(self.liveness.changes)
        self.liveness.beat(src, now)
        if self.liveness.changes and not waiting:
            self.loop.soon(self._tell_liveness)

    def _tell_liveness(self) -> None:
        """Tell local clients who has come alive, fallen silent or died."""
        changes, self.liveness.changes = self.liveness.changes, []
        self._page.hear(changes)
        for src, state in changes:
            self.bus.announce(frames.LIVENESS + src, STATE_NAMES[state].encode("ascii"))

    def _sweep(self) -> None:
        """Let time pass, in steps short enough that no datagram waits for long."""
        now = time.monotonic()
        more = [self.sources.sweep(now), self.liveness.sweep(now)]
        if self._handover is not None and self._ingress.tracker_log is not None:
            more.append(self._keep_annals(self._handover, self._ingress.tracker_log, now))
        if self.liveness.changes:
            self._tell_liveness()
        pause = SWEEP_ON if any(more) else SWEEP
        self.loop_lag.observe(now, pause)
        self.loop.later(pause, self._sweep)

    def _on_bug(self, raw: bytes) -> None:
        text = f"a datagram was dropped by a bug in this daemon: {raw[:200]!r}"
        log.bug(text, verdict="internal_error", drop="internal_error", datagram=raw[:MAX_SHOWN])

    def _put_repeats_in_force(self, settings: Settings) -> None:
        rules = [RepeatRule(rule.channels.encode(), rule.copies, rule.spacing) for rule in settings.repeat]
        self.repeater.configure(rules, DIALECTS[self._settings.bus.dialect], settings.dedup.horizon)
        if settings.dedup.late == "drop" and any(rule.spacing for rule in rules):
            log.event(
                "doubtful_setting",
                "repeat: copies that arrive behind later messages of the same program are dropped as stale by every "
                "daemon with dedup.late: drop, as here",
                remedy="set dedup.late: deliver on all hosts, or spacing: 0",
                setting="repeat",
            )

    def _on_conflict(self, src: bytes, peer: str) -> None:
        log.event(
            "identity_conflict",
            f"identity conflict: {src.decode('ascii')} is a program of this host, and {peer} sends under the same "
            "name; nothing that comes in under it is delivered",
            about=("conflict", src),
            remedy="give every host a 'host' of its own, and every program a name of its own",
            identity=src,
            peer=peer,
            drop="identity_conflicts",
        )

    # -- life

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        loop = self.loop
        patience = self.bus.limits.patience if self.taken_over else 0.0
        for intake in self._intakes:
            intake.expect_late(True)
        Backlog(loop, self.bus.fanout, patience, self._watch).begin(self._intakes)
        self._sweep()
        loop.every(WATCH_DROPS, self._drop_log.watch)
        loop.every(TALLY, self._drop_log.tell)
        self._page.begin()
        loop.every(STEP, self._page.sample)
        loop.every(TELL, lambda: self._manager.status(self._status()))
        self._manager.attach(loop)
        # The collector would walk every tracker in the midst of traffic. Nothing on the way of a datagram makes
        # cycles, so it is enough to look, now and then, at what is new.
        gc.disable()
        loop.every(TIDY, self._tidy)
        self._tidy()
        log.event("ready", f"ready: {self._summary()}", version=VERSION)
        self._manager.ready(self._status())
        self._beat()
        self._see_to_gateways(self._settings)
        try:
            loop.run()
            self._drain()
            self.bus.close()  # with who is still there, what waits for him is gone
            self._drop_log.end()
        finally:
            # We are ending already; being told again must not turn a clean end into a death by signal.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self.close()
        log.event("stopped", "stopped")

    def _watch(self, intake: SegmentReader) -> None:
        self.loop.watch(intake.fileno(), READABLE, intake.on_readable)

    @staticmethod
    def _tidy() -> None:
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        """Close everything that was opened."""
        self._close.close()

    def _drain(self) -> None:
        """Bring what is under way to its end: datagrams received, frames sent to us, queues of clients."""
        deadline = time.monotonic() + DRAIN
        self.bus.stop_accepting()
        for intake in self._intakes:
            while time.monotonic() < deadline - DRAIN / 2 and intake.drain():
                pass
        self.bus.drain(deadline)
        # What waits to be repeated is not worth waiting for, but worth sending.
        for datagram in self.repeater.rest():
            self._send(datagram)

    def reload(self) -> None:
        """Read the configuration again and put it in force; a bad one changes nothing."""
        try:
            configuration = load(self._path)
        except ConfigError as error:
            self.config_reloads["refused"] += 1
            self._refused = f"reload refused: {error.faults[0]}"
            text = f"reload refused, nothing has changed:\n{error}"
            log.event("reload_refused", text, remedy=error.faults[0].remedy, reason=error.reason)
            return
        new = configuration.settings
        for name, before, after in _needing_restart(self._settings, new):
            if before != after:
                text = f"reload: {name} has changed and takes effect after a restart"
                log.event("restart_needed", text, remedy="systemctl restart bccnd", setting=name)
        checker = self._checker(configuration)
        checker.adopt_counts(self._ingress.checker)
        self._ingress.checker = self._egress.checker = checker
        self._keys_since = time.monotonic()
        self.sources.configure(_dedup_rules(new))
        self.liveness.configure(_liveness_rules(new))
        self._put_repeats_in_force(new)
        if new.heartbeat.interval != self._heartbeat:
            self._heartbeat = new.heartbeat.interval
            if self._beat_at is not None:
                self._beat_at.cancel()
            self._beat()
        self.anonymous.horizon = new.dedup.horizon
        self._ingress.max_age_ns = int(new.dedup.horizon * 1e9)
        self._see_to_gateways(new)
        self.bus.configure(_bus_limits(new), self._access(configuration))
        if new.metrics.groups != self._groups:
            self._set_groups(new.metrics.groups)
        self.config_reloads["applied"] += 1
        self._refused = ""
        found = f"{len(configuration.keys)} keys"
        if new.integrity.algorithm == "sig":
            found += f" and the public keys of {len(configuration.signers)} signers"
        log.event("reload_applied", f"reloaded: integrity {new.integrity.algorithm} with {found}")

    def _see_to_gateways(self, settings: Settings) -> None:
        """Start the gateways that are configured, anew where they are configured otherwise, or had given up."""
        configured = {name: section for name in GATEWAYS if (section := getattr(settings.gateways, name)) is not None}
        self.links.expected = list(configured)
        if not self._starts_gateways:
            self.loop.later(CALLED, self._miss_gateways)
            return
        for name in GATEWAYS:
            wanted = (configured[name], settings.dedup.horizon) if name in configured else None
            program = self.programs.get(name)
            if wanted == self._gateways.get(name) and not (program is not None and program.hopeless):
                continue
            self._gateways[name] = wanted
            starts = 0
            if program is not None:
                del self.programs[name]
                program.stop()
                starts = program.starts
            if wanted is not None:
                options = ["--gateway", name, "--bound", *(["--config", self._path] if self._path else [])]
                program = self.programs[name] = ChildProcess(self.loop, name, python("bccnd.cli.bccnd_main", *options))
                program.starts = starts
                program.start()

    def _leave_gateways(self) -> None:
        for program in self.programs.values():
            program.close()

    def _miss_gateways(self) -> None:
        """Say which gateways are configured, are to be started by somebody else, and are not there."""
        for name in [report["gateway"] for report in self.links if not report["up"]]:
            log.event(
                "doubtful_setting",
                f"gateways.{name} is configured, and no such gateway runs",
                remedy=f"systemctl enable --now bccnd-{name}, and see 'systemctl status bccnd-{name}'",
                setting=f"gateways.{name}",
            )

    def _checker(self, configuration: Configuration) -> IntegrityChecker:
        settings, keys, signers = configuration.settings.integrity, configuration.keys, configuration.signers
        if settings.algorithm == "sig" and keys:
            from bccnd.core.signatures import public_of  # a library that most have no use for

            # Our own broadcasts come back to us, and other programs of this host may sign with the same key.
            host, own = self._identity.partition(b"/")[0], public_of(keys[0])
            signers = {**signers, host: [*signers.get(host, []), own]}
            for prefix, public in signers.items():
                if prefix.startswith(host + b"/") and own not in public:
                    log.event(
                        "doubtful_setting",
                        f"integrity.signers: what programs below {prefix.decode('ascii')} publish here is signed with "
                        "the key of this host, which does not speak for them: everybody will refuse it",
                        remedy="name this host's public key there too, or let these programs speak on the segment "
                        "themselves",
                        setting="integrity.signers",
                    )
        return make_checker(
            settings.algorithm,
            keys,
            signers,
            required=settings.required,
            accept_unverifiable=settings.unverifiable == "accept",
        )

    def _set_groups(self, groups: dict[str, str]) -> None:
        self._groups = groups
        self._ingress.set_groups([pattern.encode() for pattern in groups.values()])

    def _summary(self) -> str:
        settings = self._settings
        where = ", ".join(segment.options.name for segment in self.segments) or "no segment"
        buses = ", ".join(one.path for one in settings.bus.all_sockets)
        passed = ", ".join(self._sockets.served)
        return (
            f"segment {where}; bus {buses}; integrity {settings.integrity.algorithm}; "
            f"metrics {', '.join(self._visited) or 'off'}"
            f"{f'; from systemd: {passed}' if passed else ''}"
            f"{'' if scan.COMPILED else '; not compiled'}"
        )

    # -- what the service manager is told

    def _on_hangup(self) -> None:
        self._manager.reloading()
        self.reload()
        self._manager.ready(self._status())

    def _on_stop(self) -> None:
        self._manager.stopping()
        self.loop.stop()

    def _status(self) -> str:
        """How things are, in a line for people."""
        (before, received), now = self._told, time.monotonic()
        self._told = now, sum(segment.counters.received for segment in self.segments)
        if self._refused:
            return self._refused
        rate = (self._told[1] - received) / max(now - before, 0.001)
        # Two digits say enough, and change seldom.
        rate = round(rate, min(0, 2 - len(str(int(rate)))))
        clients, segments, sources = len(self.bus.clients), len(self.segments), len(self.sources)
        return (
            f"serving {_counted(clients, 'client')} on {_counted(segments, 'segment')}; "
            f"{_counted(sources, 'source')} known, {rate:,.0f} datagrams a second"
        )

    # -- what is shown

    def now(self) -> float:
        return time.monotonic()

    @property
    def refused(self) -> str:
        """What is wrong with the configuration that the last reload has refused; empty if it has not."""
        return self._refused

    @property
    def keys(self) -> list[KeyUse]:
        return self._ingress.checker.list_keys()

    @property
    def host(self) -> str:
        return self._settings.host

    @property
    def started(self) -> float:
        return self._started

    def carried(self) -> list[tuple[bytes, int, int]]:
        return self._routes.carried()

    @property
    def not_kept(self) -> int:
        return 0 if self._handover is None else self._handover.unkept

    @property
    def notifications_lost(self) -> int:
        return self._manager.lost

    @property
    def subscriptions(self) -> int:
        return self._routes.subscriptions

    @property
    def groups(self) -> Iterable[tuple[str, int, int]]:
        return zip(self._groups, self._ingress.group_messages, self._ingress.group_bytes, strict=True)

    def _list_sources(self) -> Iterator[dict[str, Any]]:
        dead = self.liveness.dead
        for source in self.sources.latest(MAX_LISTED):
            died = source.src in dead and dead[source.src].heard == source.heard
            yield {
                "src": source.src.decode("ascii"),
                "state": "dead" if died else STATE_NAMES[source.state],
                "silent_seconds": round(time.monotonic() - source.heard, 3),
                "last_seq": source.last,
                "epoch": source.epoch,
                "missing": source.missing.bit_count(),
                # Unknown for datagrams from before the last reload: the keys were others.
                "key": self._ingress.checker.key_of(source.src, source.last) if source.heard > self._keys_since else "",
            }
        for src, death in list(reversed(dead.items())):
            if src not in self.sources:
                silent = round(time.monotonic() - death.heard, 3)
                yield {"src": src.decode("ascii"), "state": "dead", "silent_seconds": silent}

    def _trace(self, datagram: bytes) -> dict[str, Any]:
        """What would become of a datagram that came in now, from nowhere in particular."""
        found = trace(
            datagram,
            "trace",
            time.monotonic(),
            ceiling=self._ingress.ceiling,
            checker=self._ingress.checker,
            sources=self.sources,
            anonymous=self.anonymous,
            routes=self._routes,
        )
        clients = [self.bus.clients[fd].identity.decode("ascii") for fd in found.receivers]
        return {
            "verdict": found.verdict,
            "stages": [{"stage": name, "passed": passed, "finding": text} for name, passed, text in found.stages],
            "receivers": clients[:MAX_TRACED],
            "more_receivers": max(0, len(clients) - MAX_TRACED),
        }

    def _describe(self) -> Iterator[dict[str, Any]]:
        yield {
            "version": VERSION,
            "host": self._settings.host,
            "identity": self._identity.decode("ascii"),
            "pid": os.getpid(),
            "started": round(self._started, 3),
            "clients": len(self.bus.clients),
            "subscriptions": self.subscriptions,
            "sources": len(self.sources),
            "segments": [segment.options.name for segment in self.segments],
            "received": sum(segment.counters.received for segment in self.segments),
            "sent": sum(segment.counters.sent for segment in self.segments),
            "kernel_drops": sum(segment.kernel_drops() for segment in self.segments),
            "verdicts": {
                name: sum(segment.counters.verdicts[number] for segment in self.segments)
                for number, name in enumerate(NAMES)
            },
            "missing": self.sources.missing,
            "lost": self.sources.lost,
            "published": self.bus.counters.published,
            "deliveries": self.bus.counters.deliveries,
            "dropped": self.bus.counters.dropped,
            "queue_bytes": self.bus.queue_bytes,
        }


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _liveness_rules(settings: Settings) -> LivenessRules:
    return LivenessRules(
        interval=settings.heartbeat.interval or USUAL_INTERVAL,
        dead_after=settings.heartbeat.dead_after,
        keep_dead=settings.dedup.freshness == "monotonic",
        max_watched=settings.dedup.max_sources,
    )


def _dedup_rules(settings: Settings) -> DedupRules:
    dedup = settings.dedup
    return DedupRules(
        sanity=dedup.sanity,
        horizon=dedup.horizon,
        deliver_late=dedup.late == "deliver",
        monotonic=dedup.freshness == "monotonic",
        expire=dedup.expire,
        max_sources=dedup.max_sources,
        linked=dedup.linked or settings.gateways.nng is not None,
    )


def _bus_limits(settings: Settings) -> BusLimits:
    bus = settings.bus
    return BusLimits(
        queue_messages=bus.queue.messages,
        queue_bytes=bus.queue.bytes,
        max_clients=bus.max_clients,
        max_subscriptions=bus.max_subscriptions,
        patience=bus.patience,
        user=UserLimits(bus.user.clients, bus.user.subscriptions, bus.user.queue_bytes, bus.user.rate),
    )


def _segment_options(segment: SegmentSettings, largest: int) -> SegmentOptions:
    return SegmentOptions(
        name=segment.label,
        address=segment.address,
        port=segment.port,
        bind=segment.bind,
        interface=segment.interface,
        hop_limit=segment.hop_limit,
        receive_buffer=segment.receive_buffer,
        largest=largest,
    )


def _needing_restart(old: Settings, new: Settings) -> Iterator[tuple[str, object, object]]:
    """What is bound to sockets or to the names of clients, before and after."""
    for key in ("host", "names", "segments", "max_datagram"):
        yield key, getattr(old, key), getattr(new, key)
    for key in ("path", "mode", "group", "dialect", "sockets"):
        yield f"bus.{key}", getattr(old.bus, key), getattr(new.bus, key)
    for key in ("listen", "hosts"):
        yield f"metrics.{key}", getattr(old.metrics, key), getattr(new.metrics, key)


def _encoded(patterns: tuple[str, ...] | None) -> tuple[bytes, ...] | None:
    return None if patterns is None else tuple(pattern.encode() for pattern in patterns)


def _remove_socket(path: str, inode: int) -> None:
    """Remove our socket file, unless somebody has put another one in its place."""
    try:
        if os.stat(path).st_ino == inode:
            os.unlink(path)
    except FileNotFoundError:
        pass
