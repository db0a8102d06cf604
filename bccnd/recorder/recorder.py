"""Records what arrives on the segments, from the tap to the log.

Invariant: a packet is logged before anything else is done with it, and the tap is read whatever the disks do: the
daemon never waits for the recorder. Every record that is not kept is counted, with the reason.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bccnd import log
from bccnd.bus.recorder_reports import report_of
from bccnd.client.transport import jitter
from bccnd.errors import BadFrame, BusError
from bccnd.journal import layout
from bccnd.net.loop import READABLE, Loop
from bccnd.net.service_manager import ServiceManager
from bccnd.recorder import rows as packets
from bccnd.recorder.logfile import ALIVE, HEAD, PACKET, ROWS, LogWriter
from bccnd.recorder.payload import Payloads
from bccnd.recorder.retention_policy import RetentionPolicy
from bccnd.recorder.sessions import MAX_SESSIONS, Head, Session, pack_alive
from bccnd.recorder.spool import Spool
from bccnd.recorder.tap import Tap
from bccnd.recorder.worker import Syncer, Worker, name_of
from bccnd.version import VERSION

#: seconds between two signs of life in the log, two attempts to go on after a pause, two times that the disk is asked
TICK: Final = 1.0
#: microseconds that a datagram may take from the kernel to the daemon, and by which its stamp may lie before that (the
#: daemon's clock moves on with the kernel's ticks): of the last so many of a stretch nothing is claimed
MARGIN: Final = 20_000
#: ticks between two questions for what the kernel has dropped, and between two words to the service manager
_ASK: Final = 5
#: seconds between two calls for a daemon that is away: at first, and at last
_SHORTEST: Final = 0.1
_LONGEST: Final = 2.0
#: seconds to wait for the tap's last packets, and for the journal, at the end
_LAST_WORDS: Final = 2.0
_FAREWELL: Final = 45.0
#: bytes that a disk must have free before recording goes on
ROOM: Final = 256 << 10


@dataclass(frozen=True)
class Options:
    """What to record, and where to. Sizes in bytes, times in seconds."""

    bus: str
    journal: str
    host: str
    spool: str
    spool_size: int
    rotate: float
    rotate_size: int
    keep: RetentionPolicy = field(default_factory=RetentionPolicy)
    payloads: Payloads = field(default_factory=Payloads)


class Recorder:
    """``records`` were logged, ``dropped`` were not, by reason; ``gaps`` were lost on the way from the tap, ``drops``
    by the kernel before the daemon read them. ``paused`` is why nothing is recorded now, and empty otherwise.

    Raises JournalError: spool_in_use, no_spool.
    """

    def __init__(self, options: Options, loop: Loop, manager: ServiceManager | None = None) -> None:
        self.options = options
        self.records = self.gaps = self.drops = 0
        self.dropped = {"disk": 0, "spool_full": 0}
        self.paused = ""
        self.status = "starting"
        #: where the status is reported, from time to time
        self.on_status: Callable[[str], None] = lambda _text: None
        #: what the daemon refused us for, at the first attempt
        self.failed: BusError | None = None
        self.spool = Spool(options.spool)
        self.worker = Worker(self.spool, options.journal, options.host, options.keep, options.rotate)
        self._loop = loop
        self._manager = manager
        self._syncer = Syncer()
        self._tap: Tap | None = None
        self._wait = _SHORTEST
        self._head: Head | None = None
        self._log: LogWriter | None = None
        #: logs of this journal, and the number of its next record
        self._logs = 0
        self._next = 1
        self._drops_before = -1
        self._rotate_at = 0.0
        self._day = ""
        self._ticks = 0
        self._ready = False
        #: the time to exit at, once stopping; and whether the tap is closed
        self._ending = 0.0
        self._over = False
        self._why = ""
        self._reason = "disk"
        self._said_away = False
        self._reported = b""

    # -- life

    def run(self) -> bool:
        """Record until a signal comes; whether all of it is in the journal."""
        loop = self._loop
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.on_signal(number, self.stop)
        self.worker.start()
        if self._manager is not None:
            self._manager.attach(loop)
            self._manager.ready("waiting for the daemon")
        loop.soon(self._connect)
        loop.every(TICK, self._tick)
        try:
            loop.run()
        finally:
            self._close_log()
            self.spool.close()
        return not self.worker.logs

    def stop(self) -> None:
        """Stop: take what is under way and convert what is logged. A second call leaves the rest in the log."""
        if self._ending:
            self._loop.stop()
            return
        self._ending = time.monotonic() + _LAST_WORDS
        if self._manager is not None:
            self._manager.stopping()
            self._manager.extend_timeout(_LAST_WORDS + _FAREWELL + 5)
        if self._tap is not None and self._head is not None:
            with contextlib.suppress(BusError):
                self._tap.unsubscribe(b"last %d" % _now())
                self._loop.later(_LAST_WORDS, self._end)
                return
        self._end()

    def _end(self) -> None:
        """Nothing more comes: finish what there is."""
        if self._over:
            return
        self._over = True
        if self._tap is not None:
            self._loop.unwatch(self._tap.fileno())
            self._tap.close()
            self._tap = None
        self._end_journal()
        self.worker.end()
        self._ending = time.monotonic() + _FAREWELL
        self._await()

    def _await(self) -> None:
        if self.worker.done or time.monotonic() > self._ending:
            self._loop.stop()
        else:
            self._loop.later(0.02, self._await)

    # -- the daemon

    def _connect(self) -> None:
        if self._ending:
            return
        try:
            tap = Tap(self.options.bus, self._on_packet, self._on_echo, self._on_drops)
        except BusError as error:
            self._away(error)
            return
        self._tap = tap
        self._loop.watch(tap.fileno(), READABLE, self._on_readable)
        try:
            tap.subscribe(b"first")
        except BusError as error:
            self._lost(error)

    def _away(self, error: BusError) -> None:
        """Call again in a while."""
        self._why = error.detail
        if not self._said_away:
            remedy = "start it (systemctl start bccnd), or name its socket with --socket"
            if isinstance(error.__cause__, PermissionError):
                remedy = "let this user use the socket: as a member of its group (bccn), or by its mode (bus.mode)"
            log.event("daemon_away", f"{error.detail}; waiting for it", remedy=remedy, reason=error.reason)
            self._said_away = True
        self._loop.later(self._wait * (0.5 + 0.5 * jitter()), self._connect)
        self._wait = min(_LONGEST, 2 * self._wait)

    def _on_readable(self, _events: int) -> None:
        tap = self._tap
        if tap is None:
            return
        try:
            tap.receive()
        except (BusError, BadFrame) as error:
            self._lost(
                error if isinstance(error, BusError) else BusError("connection_lost", f"what came was no {error}")
            )

    def _lost(self, error: BusError) -> None:
        """The connection is over, and with it this journal."""
        tap = self._tap
        if tap is None:
            return
        self._loop.unwatch(tap.fileno())
        tap.close()
        self._tap = None
        recorded = self._head is not None
        self._why = error.detail
        self._end_journal()
        if self._ending:
            self._end()
        elif error.reason != "connection_lost" and not self._ready and not error.reason.startswith("too_many"):
            self.failed = error
            self.stop()
        else:
            if recorded:
                self._said_away = False
            self._away(error)

    def _on_echo(self, token: bytes) -> None:
        """All is there that the daemon had when it was asked."""
        if token == b"first":
            self._begin_journal()
        elif token.startswith(b"last "):
            self._alive(int(token[5:]))
            self._end()
        elif token.isdigit():
            self._alive(int(token))

    def _on_drops(self, count: int) -> None:
        """The kernel's count; one that is less than it was has begun anew."""
        before, self._drops_before = self._drops_before, count
        new = 0 if before < 0 else count - before if count >= before else count
        if new and self._head is not None:
            self._head.stretches[-1].socket_drops += new
        self.drops += new

    # -- the journal

    def _begin_journal(self) -> None:
        now = _now()
        self._wait, self._said_away, self._why = _SHORTEST, False, ""
        head = self._name(now)
        head.stretches.append(Session(now, now))
        try:
            self._open_log(head)
        except OSError as error:
            self._pause(error)
        self._ready = True
        self._report_status()
        text = f"recording what {head.host} sees to {self.options.journal}, as {head.journal}"
        log.event("recording", text, journal=head.journal)

    def _name(self, now: int) -> Head:
        """Begin a journal of its own."""
        name = layout.journal_id(now, int.from_bytes(os.urandom(4)))
        self._head = Head(self.options.host, name, 1, VERSION)
        self._next, self._logs = 1, 0
        self.worker.current = name
        return self._head

    def _end_journal(self) -> None:
        head = self._head
        if head is None:
            return
        self._close_log()
        self._head = None
        self._drops_before = -1
        self._reported = b""
        self.paused = ""
        self.worker.current = ""
        count = self._next - 1
        log.event(
            "recording_ended", f"{count} records of {head.journal}: {self._why or 'the end'}", journal=head.journal
        )

    def _open_log(self, head: Head) -> None:
        """Go on in another log. Raises OSError."""
        head.first = self._next
        self._logs += 1
        opened = self.spool.begin(head.journal, self._logs)
        try:
            opened.has_room(ROOM)
            opened.append(HEAD, head.pack())
        except OSError:
            opened.close()
            with contextlib.suppress(OSError):
                os.unlink(opened.path)
            raise
        self._log = opened
        self._rotate_at = time.monotonic() + self.options.rotate
        self._day = layout.day_of(_now())

    def _close_log(self) -> None:
        """Give the log to the worker."""
        written, self._log = self._log, None
        if written is not None:
            stretch = self._head.stretches[-1] if self._head is not None else None
            if stretch is not None:
                with contextlib.suppress(OSError):
                    written.append(ALIVE, pack_alive(stretch.end, stretch.socket_drops))
            written.close()
            self.worker.add(written.path, written.size)

    def _rotate(self, head: Head) -> None:
        self._close_log()
        try:
            self._open_log(head)
        except OSError as error:
            self._pause(error)

    def _on_packet(self, packet: bytes) -> None:
        head = self._head
        if head is None:
            return  # not in force yet, as far as we know
        written = self._log
        payloads = self.options.payloads
        if written is None:
            self.dropped[self._reason] += self._count(packet)
            return
        try:
            if payloads.everything or packet.startswith(b"CMSG "):
                written.append(PACKET, packet)
            else:
                found = packets.observations(packet)
                if found:
                    written.append(ROWS, packets.pack(map(payloads.apply, found)))
        except OSError as error:
            self._pause(error)
            self.dropped[self._reason] += self._count(packet)
            return
        count = self._count(packet)
        self._next += count
        self.records += count
        if written.size >= self.options.rotate_size:
            self._rotate(head)

    def _count(self, packet: bytes) -> int:
        """The records of a packet; a gap is taken note of."""
        lost = packets.gap_in(packet)
        if lost:
            self.gaps += lost
            if self._head is not None:
                if self._log is not None:
                    self._head.stretches[-1].tap_gaps += lost
                self._gap(lost)
            return 0
        return len(packets.tapped(packet))

    def _gap(self, lost: int) -> None:
        remedy = "give this host more processor, or raise bus.queue of the daemon"
        text = f"{lost} records were lost between the daemon and the recorder, which was too slow"
        log.event("records_lost", text, about="gap", remedy=remedy, drop="recorder_tap_gap_records")

    def _alive(self, asked: int) -> None:
        """Everything up to a moment ago is there."""
        head, written = self._head, self._log
        if head is None or written is None:
            return
        stretch = head.stretches[-1]
        stretch.extend(asked - MARGIN, 0)
        try:
            written.append(ALIVE, pack_alive(stretch.end, stretch.socket_drops))
        except OSError as error:
            self._pause(error)

    # -- pauses

    def _pause(self, error: OSError, reason: str = "disk") -> None:
        """Record nothing until it can be written again; the stretch ends where it was last known to be whole."""
        self._close_log()
        first = not self.paused
        self.paused = error.strerror or str(error)
        self._reason = reason
        if first:
            text = f"recording pauses: {self.paused} in {self.options.spool}"
            remedy = "make room there; recording goes on by itself as soon as it can"
            log.event("recording_paused", text, remedy=remedy, error=name_of(error), drop=reason)
            self._report_status()

    def _resume(self, head: Head) -> None:
        """Go on, if there is room again, in a stretch of its own."""
        if self._reason == "spool_full" and self.worker.pending + self.options.rotate_size > self.options.spool_size:
            return
        now = _now()
        if len(head.stretches) >= MAX_SESSIONS:
            head = self._name(now)
        head.stretches.append(Session(now, now))
        try:
            self._open_log(head)
        except OSError:
            head.stretches.pop()
            return
        self.paused = ""
        lost = sum(self.dropped.values())
        text = f"recording goes on; {lost} records were not kept since this recorder has started"
        log.event("recording_resumed", text, count=lost)
        self._report_status()

    # -- time

    def _tick(self) -> None:
        self._ticks += 1
        log.flush()  # what the worker has logged
        if self.worker.done and not self._ending:  # a bug; a restart gets further
            self.failed = BusError("internal_error", "the worker that converts logs has ended")
            self.stop()
        failed, self._syncer.failed = self._syncer.failed, None
        if self._log is not None and failed is not None:
            self._pause(failed)
        elif self._head is not None and self._log is None:
            self._resume(self._head)
        if self._log is not None and self._head is not None:
            self._syncer.ask(self._log.fileno())
            if self.worker.pending + self._log.size > self.options.spool_size:
                self._pause(OSError(0, "the spool is full (recorder.spool_size)"), "spool_full")
            elif time.monotonic() >= self._rotate_at or layout.day_of(_now()) != self._day:
                self._rotate(self._head)
        if self._tap is not None and self._head is not None and not self._ending:
            try:
                if self._ticks % _ASK == 0:
                    self._tap.ask_drops()
                self._report(self._tap)
                self._tap.sync(b"%d" % _now())
            except BusError as error:
                self._lost(error)
        if self._ticks % _ASK == 0:
            self._report_status()

    @property
    def losses(self) -> dict[tuple[str, str], int]:
        """All that was not kept or was thrown away, by family and name."""
        worker = self.worker
        losses = {("recorder_dropped_records", reason): count for reason, count in self.dropped.items()}
        for name, count in (
            ("recorder_tap_gap_records", self.gaps),
            ("recorder_logs_torn", worker.torn),
            ("recorder_logs_set_aside", worker.bad),
            ("recorder_logs_removed", self.spool.removed),
            ("recorder_files_removed", worker.removed),
        ):
            losses[name, name] = count
        return losses

    def _report(self, tap: Tap) -> None:
        """Report to the daemon what was dropped, if that has changed."""
        report = report_of(self.losses)
        if report != self._reported and any(self.losses.values()):
            tap.report(report)
            self._reported = report

    def _report_status(self) -> None:
        self.status = self._describe()
        if self._manager is not None and not self._ending:
            self._manager.status(self.status)
        self.on_status(self.status)

    def _describe(self) -> str:
        worker = self.worker
        if self.paused:
            state = f"paused: {self.paused}; {sum(self.dropped.values())} records not kept"
        elif self._head is None:
            state = self._why or "waiting for the daemon"
        else:
            state = "recording"
        parts = [state, f"{self.records} records", f"{worker.files} files of {worker.bytes} bytes"]
        if self.gaps or self.drops:
            parts.append(f"lost on the way: {self.gaps} by the tap, {self.drops} by the kernel")
        if worker.trouble:
            parts.append(f"the journal cannot be written to: {worker.trouble}")
        if worker.bad:
            parts.append(f"{worker.bad} logs set aside")
        return ", ".join(parts)

    @property
    def recording(self) -> bool:
        return self._log is not None

    @property
    def spooled(self) -> int:
        """Bytes of the logs that are not yet in the journal."""
        return self.worker.pending + (self._log.size if self._log is not None else 0)

    @property
    def behind(self) -> float:
        """Seconds since the last record of the log that waits for longest to become files; 0 where none waits."""
        oldest = self.worker.oldest
        try:
            return max(0.0, time.time() - os.stat(oldest).st_mtime) if oldest else 0.0
        except FileNotFoundError:  # it has become files just now
            return 0.0


def _now() -> int:
    return time.time_ns() // 1000
