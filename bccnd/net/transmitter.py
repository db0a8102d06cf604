"""Sends datagrams on all segments, and again where a repeat rule asks for copies."""

from __future__ import annotations

from collections.abc import Iterable

from bccnd import log
from bccnd.core.sending.redundancy import Repeater
from bccnd.core.wire.frames import KEY
from bccnd.native.system import clock
from bccnd.net.loop import Loop
from bccnd.net.segment_sender import SegmentSender


class Transmitter:
    """Sends every datagram that this host broadcasts."""

    def __init__(self, loop: Loop, segments: Iterable[SegmentSender], repeater: Repeater) -> None:
        self._loop = loop
        self._segments = list(segments)
        self._fds = tuple([segment.broadcaster.fd for segment in self._segments])
        self._repeater = repeater
        #: when timers are due, the earliest last; one is added only if it is earlier, so no rule has more than one
        self._timers: list[float] = []
        #: the last round of the loop in which something was sent
        self._round = -1

    def broadcast(self, frame: bytes, datagram: bytes) -> str | None:
        """Send the datagram of a message, which is a frame, on all segments and schedule its copies; returns the name
        of an error, if there was one."""
        error = self.send(datagram)
        if self._repeater.rules:
            chan = frame[KEY : frame.index(0)]
            if self._repeater.add(chan, datagram, clock.monotonic()):
                self._send_due_copies()
        return error

    def send(self, datagram: bytes) -> str | None:
        """Send a datagram on all segments, once; returns the name of the last error, if there was one.

        It comes back at once: the segments are read at the end of this round, too.
        """
        failed = None
        if self._round != self._loop.rounds:
            self._round = self._loop.rounds
            self._loop.again(self._fds)
        for segment in self._segments:
            error = segment.broadcast(datagram)
            if error is not None:
                failed = error
                _log_error(segment.counters.name, error)
        return failed

    def send_remaining_copies(self) -> None:
        """Send at once all copies that are scheduled; for the end of the process."""
        for datagram in self._repeater.rest():
            self.send(datagram)

    def _send_due_copies(self) -> None:
        for datagram in self._repeater.due(clock.monotonic()):
            self.send(datagram)
        due = self._repeater.next_due
        if due is not None and (not self._timers or due < self._timers[-1]):
            self._timers.append(due)
            self._loop.later(max(0.0, due - clock.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timers.pop()
        self._send_due_copies()


def _log_error(segment: str, error: str) -> None:
    log.event(
        "send_failed",
        f"segment {segment}: cannot broadcast: {error}",
        about=f"send/{segment}/{error}",
        remedy="check that the interface is up and has an address (ip address), that there is a route (ip route), and "
        "that no firewall refuses it (nft list ruleset)",
        segment=segment,
        error=error,
        drop="send_errors",
    )
