"""Records what arrives on the segments, from the tap to the log.

Invariant: a packet is logged before anything else is done with it, and the tap is read whatever the disks do: the
daemon never waits for the recorder.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Final

from bccnd import log
from bccnd.bus.requests.recorder_reports import report_of
from bccnd.client.transport import jitter
from bccnd.config import RecorderSettings
from bccnd.errors import BadFrame, BusError
from bccnd.net.loop import READABLE, Loop
from bccnd.net.service_manager import ServiceManager
from bccnd.recorder.maintenance import Maintenance
from bccnd.recorder.rotating_log import RotatingLog
from bccnd.recorder.spool import Spool
from bccnd.recorder.tap_connection import TapConnection

#: seconds between two checks of log and disk, two syncs with the daemon, two attempts to go on after a pause
TICK: Final = 1.0
#: ticks between two requests for the kernel's drops, and two reports of the status
_ASK: Final = 5
#: seconds between two attempts to reach the daemon: at first, and at last
_SHORTEST: Final = 0.1
_LONGEST: Final = 2.0
#: seconds to wait for the tap's last packets, and for the journal, at the end
_LAST_WORDS: Final = 2.0
_FAREWELL: Final = 45.0


class Recorder:
    """Connects the tap of the daemon at ``bus`` with a recording, as ``host``; logs wait in the folder ``spool``.

    Raises JournalError: spool_in_use, no_spool.
    """

    def __init__(
        self,
        bus: str,
        settings: RecorderSettings,
        host: str,
        spool: str,
        loop: Loop,
        manager: ServiceManager | None = None,
    ) -> None:
        #: where the status is reported, from time to time
        self.on_status: Callable[[str], None] = lambda _text: None
        #: why the daemon refused the recorder, at the first attempt
        self.failed: BusError | None = None
        self.settings = settings
        self.spool = Spool(spool)
        self.maintenance = Maintenance(self.spool, settings.journal, host, settings.keep)
        self.rotating_log = RotatingLog(settings, host, self.spool, self.maintenance)
        self._bus, self._loop, self._manager = bus, loop, manager or ServiceManager()
        self._tap: TapConnection | None = None
        self._wait = _SHORTEST
        self._ticks = 0
        self._ready = False
        #: the time to exit at, once stopping; and whether the tap is closed for good
        self._ending, self._over = 0.0, False
        #: why the daemon is away, and whether that was logged
        self._why, self._logged_away = "", False
        #: what the daemon and the service manager last got
        self._reported, self._paused = b"", ""

    # -- life

    def run(self) -> bool:
        """Record until a signal comes; return whether all of it is in the journal."""
        loop = self._loop
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.on_signal(number, self.stop)
        self.maintenance.start()
        self._manager.attach(loop)
        self._manager.ready("waiting for the daemon")
        loop.soon(self._connect)
        loop.every(TICK, self._tick)
        try:
            loop.run()
        finally:
            self.rotating_log.close_log()
            self.spool.close()
        return not self.maintenance.logs

    def stop(self) -> None:
        """Stop: take what is under way and convert what is logged. A second call leaves the rest in the log."""
        if self._ending:
            self._loop.stop()
            return
        self._ending = time.monotonic() + _LAST_WORDS
        self._manager.stopping()
        self._manager.extend_timeout(_LAST_WORDS + _FAREWELL + 5)
        if self._tap is not None and self.rotating_log.head is not None:
            with contextlib.suppress(BusError):
                self._tap.unsubscribe(b"last %d" % self.rotating_log.notice_step())
                self._loop.later(_LAST_WORDS, self._end)
                return
        self._end()

    def _end(self) -> None:
        """Finish the journal: no more packets come."""
        if not self._over:
            self._over = True
            self._close_tap()
            self._end_journal()
            self.maintenance.end()
            self._ending = time.monotonic() + _FAREWELL
            self._await_worker()

    def _await_worker(self) -> None:
        if self.maintenance.done or time.monotonic() > self._ending:
            self._loop.stop()
        else:
            self._loop.later(0.02, self._await_worker)

    # -- the daemon

    def _connect(self) -> None:
        if self._ending:
            return
        try:
            self._tap = TapConnection(self._bus, self.rotating_log.on_packet, self._on_echo, self.rotating_log.on_drops)
        except BusError as error:
            self._retry(error)
            return
        self._loop.watch(self._tap.fileno(), READABLE, self._on_readable)
        try:
            self._tap.subscribe(b"first")
        except BusError as error:
            self._on_lost(error)

    def _retry(self, error: BusError) -> None:
        """Connect again in a while."""
        self._why = error.detail
        if not self._logged_away:
            remedy = "start it (systemctl start bccnd), or name its socket with --socket"
            if isinstance(error.__cause__, PermissionError):
                remedy = "let this user use the socket: as a member of its group (bccn), or by its mode (bus.mode)"
            log.event("daemon_away", f"{error.detail}; waiting for it", remedy=remedy, reason=error.reason)
            self._logged_away = True
        self._loop.later(self._wait * (0.5 + 0.5 * jitter()), self._connect)
        self._wait = min(_LONGEST, 2 * self._wait)

    def _on_readable(self, _events: int) -> None:
        if self._tap is not None:
            try:
                self._tap.receive()
            except BadFrame as error:
                self._on_lost(BusError("connection_lost", f"the daemon sent a packet that cannot be read: {error}"))
            except BusError as error:
                self._on_lost(error)

    def _close_tap(self) -> None:
        if self._tap is not None:
            self._loop.unwatch(self._tap.fileno())
            self._tap.close()
            self._tap = None

    def _on_lost(self, error: BusError) -> None:
        """End the journal with the connection."""
        if self._tap is None:
            return
        self._close_tap()
        recorded = self.rotating_log.head is not None
        self._why = error.detail
        self._end_journal()
        if self._ending:
            self._end()
        elif error.reason != "connection_lost" and not self._ready and not error.reason.startswith("too_many"):
            self.failed = error
            self.stop()
        else:
            self._logged_away = self._logged_away and not recorded
            self._retry(error)

    def _end_journal(self) -> None:
        self.rotating_log.end(self._why or "the end")
        self._reported = b""

    def _on_echo(self, token: bytes) -> None:
        """Everything is there that the daemon had when it was asked."""
        if token == b"first":
            self._wait, self._logged_away, self._why = _SHORTEST, False, ""
            self.rotating_log.begin()
            self._ready = True
            self._report_status()
        elif (last := token.removeprefix(b"last ")).isdigit():
            self.rotating_log.on_synced(int(last))
            if last != token:
                self._end()

    # -- time

    def _tick(self) -> None:
        self._ticks += 1
        ask = self._ticks % _ASK == 0
        if self.maintenance.done and not self._ending:  # a bug; a restart gets further
            self.failed = BusError("internal_error", "the worker that converts logs has ended")
            self.stop()
        moment = self.rotating_log.check()
        if self._tap is not None and self.rotating_log.head is not None and not self._ending:
            try:
                if ask:
                    self._tap.ask_drops()
                self._report_losses(self._tap)
                self._tap.sync(b"%d" % moment)
            except BusError as error:
                self._on_lost(error)
        if ask or self.rotating_log.paused != self._paused:
            self._report_status()

    @property
    def losses(self) -> dict[tuple[str, str], int]:
        """All that was not kept or was thrown away, by family and name."""
        worker = self.maintenance
        losses = {("recorder_dropped_records", reason): count for reason, count in self.rotating_log.dropped.items()}
        for name, count in (
            ("recorder_tap_gap_records", self.rotating_log.gaps),
            ("recorder_logs_torn", worker.torn),
            ("recorder_logs_set_aside", worker.bad),
            ("recorder_logs_removed", self.spool.removed),
            ("recorder_files_removed", worker.removed),
        ):
            losses[name, name] = count
        return losses

    def _report_losses(self, tap: TapConnection) -> None:
        """Report to the daemon what was dropped, if that has changed."""
        report = report_of(self.losses)
        if report != self._reported and any(self.losses.values()):
            tap.report(report)
            self._reported = report

    def _report_status(self) -> None:
        self._paused = self.rotating_log.paused
        text = self._describe()
        if not self._ending:
            self._manager.status(text)
        self.on_status(text)

    def _describe(self) -> str:
        worker, writer = self.maintenance, self.rotating_log
        if writer.paused:
            state = f"paused: {writer.paused}; {sum(writer.dropped.values())} records not kept"
        elif writer.head is None:
            state = self._why or "waiting for the daemon"
        else:
            state = "recording"
        parts = [state, f"{writer.records} records", f"{worker.files} files of {worker.bytes} bytes"]
        if writer.gaps or writer.drops:
            parts.append(f"lost on the way: {writer.gaps} by the tap, {writer.drops} by the kernel")
        if worker.trouble:
            parts.append(f"the journal cannot be written to: {worker.trouble}")
        if worker.bad:
            parts.append(f"{worker.bad} logs set aside")
        return ", ".join(parts)
