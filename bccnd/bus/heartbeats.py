"""Sends this daemon's heartbeats, and announces to clients when a source becomes alive, silent or dead."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bccnd.bus.delivery.replies import count_own_refusal
from bccnd.bus.server import Bus
from bccnd.core.tracking.liveness import STATE_NAMES, Change, Liveness
from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import HEARTBEAT
from bccnd.net.loop import Loop, Timer


class HeartbeatSender:
    """Publishes a heartbeat under ``identity`` every ``interval`` seconds; an interval of 0 sends none."""

    def __init__(self, loop: Loop, bus: Bus, identity: bytes) -> None:
        self._loop = loop
        self._bus = bus
        self._identity = identity
        self._interval = 0.0
        self._timer: Timer | None = None

    def set_interval(self, interval: float) -> None:
        """Change the interval; the first heartbeat at a new one is sent at once."""
        if interval != self._interval:
            self._interval = interval
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if interval:
                self._send()

    def _send(self) -> None:
        self._timer = self._loop.later(self._interval, self._send)
        chan = HEARTBEAT + self._identity
        refused = self._bus.publish(self._identity, chan, b"")
        if refused and refused != "send_failed":  # that one is counted and logged where it happens
            count_own_refusal(self._bus.counters, refused, "heartbeats", "set heartbeat.interval: 0")


class LivenessAnnouncer:
    """Passes changes of liveness on to subscribed clients and to ``on_changes``."""

    def __init__(
        self, loop: Loop, liveness: Liveness, bus: Bus, on_changes: Callable[[Iterable[Change]], None]
    ) -> None:
        self._loop = loop
        self._liveness = liveness
        self._bus = bus
        self._on_changes = on_changes

    def on_heartbeat(self, src: bytes, now: float) -> None:
        """Take an accepted heartbeat; a change is announced after its batch of datagrams."""
        scheduled = bool(self._liveness.changes)
        self._liveness.on_heartbeat(src, now)
        if self._liveness.changes and not scheduled:
            self._loop.soon(self.announce)

    def announce(self) -> None:
        """Announce the changes found since the last call."""
        changes, self._liveness.changes = self._liveness.changes, []
        if changes:
            self._on_changes(changes)
        for src, state in changes:
            self._bus.announce(frames.LIVENESS + src, STATE_NAMES[state].encode("ascii"))
