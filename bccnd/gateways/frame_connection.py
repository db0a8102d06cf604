"""A gateway's connection to the daemon that passes on raw frames, many at a time.

Invariant: nothing waits, and nothing grows without a bound. Messages that the daemon does not take at once are queued
up to a limit, beyond which the newest is dropped. Queued messages go to the next daemon, unless
`FrameConnection.forget` has dropped them before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from bccnd.client.session import Outgoing, Session
from bccnd.core.wire import frames
from bccnd.gateways.base import DaemonConnection

#: packets read before others have their turn; each may hold some hundreds of messages
_TURN: Final = 4
#: the most seconds between attempts to reach the daemon: what waits for it must not become too old meanwhile
_LONGEST: Final = 0.4
#: bytes that may wait in the kernel, from where the daemon takes them: half a second of a busy link
_SEND_BUFFER: Final = 1 << 20
#: bytes that may wait in this process
_ROOM_BYTES: Final = 16 << 20


class _Timed(Outgoing):
    """A message with the moment at which it was passed in."""

    def __init__(self, frame: bytes, given: float, on_sent: Callable[[], None]) -> None:
        super().__init__(frame, on_sent, patient=True)
        self.given = given


class FrameConnection(DaemonConnection):
    """``on_frames`` is called with the frames that the daemon sends, many at a time; ``on_emptied`` when nothing is
    left to be read, and ``on_up`` when a daemon serves this gateway; ``room`` frames may wait."""

    def __init__(
        self,
        path: str,
        room: int,
        *,
        on_frames: Callable[[list[bytes]], None],
        on_emptied: Callable[[], None],
        on_up: Callable[[], None],
    ) -> None:
        self.room, self._on_frames, self._on_up = room, on_frames, on_up
        session = Session(path, meta=False, restores=True, longest=_LONGEST)
        super().__init__(
            session, feed=self._feed, on_empty=on_emptied, send_buffer=_SEND_BUFFER, room=lambda _reads: _TURN
        )
        self._size = 0
        self._refused: set[bytes] = set()
        self._was_up = False

    @property
    def waiting(self) -> deque[Outgoing]:
        """Messages that the daemon has not taken yet."""
        return self.session.queue

    # -- patterns

    def unsubscribe(self, pattern: bytes) -> None:
        self._refused.discard(pattern)
        super().unsubscribe(pattern)

    def refused(self, pattern: bytes) -> None:
        """The daemon has refused a pattern, or taken it away."""
        self._refused.add(pattern)

    def again(self) -> None:
        """Ask once more for what was refused."""
        for pattern in self._refused:
            self.session.ask_again(pattern)
        self._refused.clear()
        self._transport.flush()

    # -- out

    def send(self, frame: bytes, now: float) -> bool:
        """Send a message, now or as soon as the daemon takes it; False where too many wait already."""
        if self._transport.send_now(frame):
            return True
        if len(self.waiting) >= self.room or self._size > _ROOM_BYTES:
            return False
        self._size += len(frame)
        self._transport.send(_Timed(frame, now, lambda: self._release(frame)))
        return True

    def _release(self, frame: bytes) -> None:
        self._size -= len(frame)

    def forget(self, before: float) -> int:
        """Drop messages that were passed in before this moment and not taken; returns how many."""
        count = 0
        while self.waiting and isinstance(first := self.waiting[0], _Timed) and first.given < before:
            self._release(self.waiting.popleft().frame)
            count += 1
        return count

    # -- in

    def read(self) -> None:
        """Take what is there, up to a turn of it."""
        self._transport.on_readable()

    def _feed(self, packet: bytes, now: float, _clock_ns: int) -> None:
        if packet.startswith(frames.MSGS):
            self._on_frames(frames.read_batch(packet))
            return
        if not packet.startswith(b"MSG "):
            self.session.feed(packet, now, 0)
            self.session.events.clear()
            if self.up and not self._was_up:
                self._was_up = True
                self._on_up()
        self._on_frames([packet])

    def _on_turn(self) -> None:
        if self._was_up and not self.up:
            self._was_up = False
            self._refused.clear()
