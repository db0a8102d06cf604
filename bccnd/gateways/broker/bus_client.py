"""The broker's connection to the bus: the broker's dialect, messages in, publications out.

Invariant: nothing waits, nothing blocks, and nothing grows without a bound: what the daemon does not take is dropped
with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bccnd.client.event_queues import Gap, Refusal
from bccnd.client.message import Message
from bccnd.client.outgoing import Outgoing
from bccnd.client.session import Session
from bccnd.core.wire import frames
from bccnd.errors import BusError
from bccnd.gateways.base import DaemonConnection

#: messages that wait for a daemon that is busy; more are dropped
MAX_WAITING: Final = 1024


class BusClient(DaemonConnection):
    """``on_messages`` is called with what has come at once, ``on_refusal`` with what the daemon refused, ``on_gap``
    with the number of messages that it has dropped because they were not read, ``on_lost`` with the reason why
    publications were dropped after all, and their number. With ``local`` what is published stays on this host.

    Raises BusError: bad_address, where no daemon can ever be.
    """

    def __init__(
        self,
        path: str,
        on_messages: Callable[[list[Message]], None],
        on_refusal: Callable[[Refusal], None],
        on_gap: Callable[[int], None],
        on_lost: Callable[[str, int], None],
        *,
        local: bool,
    ) -> None:
        self._on_messages, self._on_refusal, self._on_gap, self._on_lost = on_messages, on_refusal, on_gap, on_lost
        super().__init__(Session(path, dialect="broker", restores=True))
        self.session.modes["echo"] = frames.request(frames.ECHO + b"off")
        self.session.modes["local"] = frames.request(frames.LOCAL_ON if local else frames.LOCAL_OFF)

    def close(self) -> None:
        super().close()
        self._drop_waiting()

    def publish(self, chan: bytes, payload: bytes) -> str:
        """Publish a message; returns why it was dropped (not_connected, bus_full), or nothing."""
        if not self.up:
            return "not_connected"
        if len(self.session.queue) >= MAX_WAITING:
            return "bus_full"
        self._transport.send(_Publication(frames.message(chan, payload), self._on_lost))
        return ""

    def _on_turn(self) -> None:
        messages: list[Message] = []
        while self.session.events:
            event = self.session.events.popleft()
            if isinstance(event, Message):
                messages.append(event)
            elif isinstance(event, Gap):
                self._on_gap(event.lost)
            elif isinstance(event, Refusal):
                self._on_refusal(event)
        if messages:
            self._on_messages(messages)
        if not self.up:
            self._drop_waiting()

    def _drop_waiting(self) -> None:
        lost = len(self.session.queue)
        self.session.queue.clear()
        if lost:
            self._on_lost("not_connected", lost)


class _Publication(Outgoing):
    """A message that is counted if the socket will never take it."""

    def __init__(self, frame: bytes, on_lost: Callable[[str, int], None]) -> None:
        super().__init__(frame, patient=True)
        self._on_lost = on_lost

    def fail(self, error: BusError) -> None:
        super().fail(error)
        self._on_lost("oversize", 1)
