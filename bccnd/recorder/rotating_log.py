"""Writes what the tap brings into logs, journal after journal, and pauses while the disk takes nothing.

Invariant: every record is either in the log, and has its number there, or counted with the reason. A session ends where
the log was last known to be whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from bccnd import log
from bccnd.config import RecorderSettings
from bccnd.core.wire import frames
from bccnd.journal import file_names
from bccnd.journal.sessions import Cause, RecorderSession
from bccnd.recorder import rows
from bccnd.recorder.clock_steps import STEP, Clocks, cause_of_step, read_clocks
from bccnd.recorder.logfile import ALIVE, HEAD, PACKET, ROWS, LogWriter
from bccnd.recorder.maintenance import Maintenance, Syncer, name_of
from bccnd.recorder.payload import Payloads
from bccnd.recorder.sessions import MAX_SESSIONS, Head, pack_alive
from bccnd.recorder.spool import Spool
from bccnd.version import VERSION

#: microseconds that a datagram may take from the kernel to the daemon, and by which its stamp may lie before that (the
#: daemon's clock moves on with the kernel's ticks): of the last so many of a session nothing is claimed
MARGIN: Final = 20_000
#: bytes that a disk must have free before recording goes on
ROOM: Final = 256 << 10


class RotatingLog:
    """``records`` were logged, ``dropped`` were not, by reason; ``gaps`` were lost on the way from the tap, ``drops``
    by the kernel before the daemon read them. ``head`` is that of the journal, None without a subscription; ``log`` is
    None while recording pauses, and ``paused`` is why."""

    def __init__(
        self,
        settings: RecorderSettings,
        host: str,
        spool: Spool,
        worker: Maintenance,
        clock: Callable[[], Clocks] = read_clocks,
    ) -> None:
        self.records = self.gaps = self.drops = 0
        self.dropped = {"disk": 0, "spool_full": 0}
        self.paused = ""
        self.head: Head | None = None
        self.log: LogWriter | None = None
        self._settings, self._host, self._spool, self._worker = settings, host, spool, worker
        self._payloads = Payloads([(rule.channels, rule.payload) for rule in settings.payload])
        self._syncer = Syncer()
        self._clock = clock
        self._reason = "disk"
        #: logs of this journal, and the number of its next record
        self._logs, self._next = 0, 1
        #: the kernel's count when it was last reported, -1 before
        self._kernel_drops = -1
        #: when the log ends by the clock of the time awake, and the day by the time of day
        self._rotate_at, self._day = 0, ""
        self._clocks = Clocks(0, 0, 0)
        #: when the latest datagram was received, in microseconds since 1970
        self._stamp = 0

    # -- journals

    def begin(self) -> None:
        """Begin a journal: the subscription is in force."""
        head = self._make_head()
        self._begin_session(head, "start")
        self._open_or_pause(head)
        text = f"recording what {head.host} sees to {self._settings.journal}, as {head.journal}"
        log.event("recording", text, journal=head.journal)

    def _make_head(self) -> Head:
        name = file_names.journal_id(self._clock().wall, int.from_bytes(os.urandom(4)))
        self.head = Head(self._host, name, 1, VERSION)
        self._next, self._logs = 1, 0
        self._worker.current = name
        return self.head

    def _begin_session(self, head: Head, cause: Cause) -> None:
        self._clocks = self._clock()
        wall, number = self._clocks.wall, self._next
        head.sessions.append(RecorderSession(wall, wall, cause=cause, first=number, last=number - 1))

    def end(self, reason: str) -> None:
        """End the journal, if there is one."""
        head = self.head
        if head is not None:
            self.close_log()
            self.head = None
            self._kernel_drops = -1
            self.paused = self._worker.current = ""
            text = f"{self._next - 1} records of {head.journal}: {reason}"
            log.event("recording_ended", text, journal=head.journal)

    # -- logs

    def _open_log(self, head: Head) -> None:
        """Go on in another log. Raises OSError."""
        head.first = self._next
        self._logs += 1
        opened = self._spool.begin(head.journal, self._logs)
        try:
            opened.has_room(ROOM)
            opened.append(HEAD, head.pack())
        except OSError:
            opened.close()
            with contextlib.suppress(OSError):
                os.unlink(opened.path)
            raise
        self.log = opened
        clocks = self._clock()
        self._rotate_at = clocks.awake + round(self._settings.rotate * file_names.MICROSECONDS)
        self._day = file_names.day_of(clocks.wall)

    def _open_or_pause(self, head: Head) -> None:
        try:
            self._open_log(head)
        except OSError as error:
            self.pause(error)

    def close_log(self) -> None:
        """Give the log to the worker."""
        written, self.log = self.log, None
        if self.head is not None and self.head.sessions:
            self.head.sessions[-1].last = self._next - 1
        if written is not None:
            with contextlib.suppress(OSError):
                self._log_session(written)
            written.close()
            self._worker.add(written.path, written.size)

    def _log_session(self, written: LogWriter) -> None:
        if self.head is not None:
            session = self.head.sessions[-1]
            written.append(ALIVE, pack_alive(session.end, session.socket_drops))

    def _rotate(self, head: Head) -> None:
        self.close_log()
        self._open_or_pause(head)

    def _with_room(self, head: Head) -> Head:
        """The journal that can have another session."""
        return head if len(head.sessions) < MAX_SESSIONS else self._make_head()

    def notice_step(self) -> int:
        """End the session and begin another one if this host slept, or its clock was set, since the last call: between
        the two it received nothing, or there was no such time. Returns the time now."""
        before, self._clocks = self._clocks, self._clock()
        cause = cause_of_step(before, self._clocks)
        if cause is not None and self.head is not None and self.log is not None:
            self.close_log()
            head = self._with_room(self.head)
            self._begin_session(head, cause)
            self._open_or_pause(head)
            seconds = (self._clocks.wall - before.wall) / 1e6
            happened = "this host slept" if cause == "suspend" else "the clock of this host was set"
            text = f"another session begins: {happened}; its clock has gone {seconds:+.1f} s since the last look"
            log.event("session_begun", text, cause=cause)
        return self._clocks.wall

    # -- what comes

    def on_packet(self, packet: bytes) -> None:
        """Log a packet of the tap. Raises BadFrame."""
        if self.head is None:
            return  # the subscription is not confirmed yet
        lost, datagrams = rows.gap_in(packet), rows.tapped(packet)
        if datagrams:
            self._notice_jump(rows.received(datagrams[0]), rows.received(datagrams[-1]))
        if self.log is not None:
            try:
                self._write(self.log, packet)
            except OSError as error:
                self.pause(error)
        if lost:
            self._count_gap(packet, lost)
        if self.log is None:
            self.dropped[self._reason] += len(datagrams)
            return
        self._next += len(datagrams)
        self.records += len(datagrams)
        if self.log.size >= self._settings.rotate_size:
            self._rotate(self.head)

    def _notice_jump(self, first: int, last: int) -> None:
        """Look at the clocks if the stamps of datagrams jump, so that a session has no records of another clock."""
        if abs(first - self._stamp) >= STEP:
            self.notice_step()
        self._stamp = last

    def _write(self, written: LogWriter, packet: bytes) -> None:
        if self._payloads.everything or packet.startswith(b"CMSG "):
            written.append(PACKET, packet)
        elif observations := rows.observations(packet):
            written.append(ROWS, rows.pack(map(self._payloads.apply, observations)))

    def _count_gap(self, packet: bytes, lost: int) -> None:
        self.gaps += lost
        if self.log is not None and self.head is not None:
            self.head.sessions[-1].tap_gaps += lost
        if packet == frames.gap(0):
            remedy = "find the end of the daemon in its log (journalctl -u bccnd)"
            text = "an unknown number of records was lost, as the daemon was killed or has crashed"
        else:
            remedy = "give this host more processor, or raise bus.queue of the daemon"
            text = f"{lost} records were lost between the daemon and the recorder, which was too slow"
        log.event("records_lost", text, about="gap", remedy=remedy, drop="recorder_tap_gap_records")

    def on_drops(self, count: int) -> None:
        """Take the kernel's count of drops; one that is less than before has begun anew."""
        before, self._kernel_drops = self._kernel_drops, count
        new = 0 if before < 0 else count - before if count >= before else count
        self.drops += new
        if self.head is not None and self.head.sessions:
            self.head.sessions[-1].socket_drops += new

    def on_synced(self, asked: int) -> None:
        """Log that everything has come that the daemon had at this time."""
        if self.head is not None and self.log is not None:
            # A clock that was set back in between has made the question one of the future.
            self.head.sessions[-1].extend(min(asked, self._clock().wall) - MARGIN, 0)
            try:
                self._log_session(self.log)
            except OSError as error:
                self.pause(error)

    # -- pauses

    def pause(self, error: OSError, reason: str = "disk") -> None:
        """Record nothing until it can be written again."""
        self.close_log()
        first = not self.paused
        self.paused = error.strerror or str(error)
        self._reason = reason
        if first:
            text = f"recording pauses: {self.paused} in {self._spool.folder}"
            remedy = "make room there; recording goes on by itself as soon as it can"
            log.event("recording_paused", text, remedy=remedy, error=name_of(error), drop=reason)

    def _resume(self, head: Head) -> None:
        """Go on in a session of its own, if there is room again."""
        settings = self._settings
        if self._reason == "spool_full" and self._worker.pending + settings.rotate_size > settings.spool_size:
            return
        head = self._with_room(head)
        self._begin_session(head, "resumed")
        try:
            self._open_log(head)
        except OSError:
            head.sessions.pop()
            return
        self.paused = ""
        lost = sum(self.dropped.values())
        text = f"recording goes on; {lost} records were not kept since this recorder has started"
        log.event("recording_resumed", text, count=lost)

    def check(self) -> int:
        """Sync and rotate the log, pause, or go on: to be called every second. Returns the time now, before which no
        step of the clock is unnoticed."""
        failed, self._syncer.failed = self._syncer.failed, None
        moment = self.notice_step()
        if self.head is None:
            return moment
        if self.log is None:
            self._resume(self.head)
        elif failed is not None:
            self.pause(failed)
        if self.log is not None:
            self._syncer.ask(self.log.fileno())
            if self.spooled > self._settings.spool_size:
                self.pause(OSError(0, "the spool is full (recorder.spool_size)"), "spool_full")
            elif self._clocks.awake >= self._rotate_at or file_names.day_of(moment) != self._day:
                self._rotate(self.head)
        return moment

    @property
    def spooled(self) -> int:
        """Bytes of the logs that are not yet in the journal."""
        return self._worker.pending + (self.log.size if self.log is not None else 0)
