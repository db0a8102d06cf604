"""A gateway's line to the daemon: packets in, packets out, on asyncio.

Invariant: nothing waits, and nothing grows without a bound. Messages that the daemon does not take at once are queued
up to a limit, beyond which the newest is dropped. A daemon that goes away is called again for as long as it takes, and
told again which patterns are held; queued messages go to the next one unless they have become too old for that.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from bccnd.client.transport import BUFFER, address_of, dial, jitter
from bccnd.core import frames
from bccnd.errors import BadFrame

#: packets read before others have their turn; each may hold some hundreds of messages
_TURN: Final = 4
#: seconds between attempts to reach the daemon: the first one, and what doubling ends at; what waits for it must not
#: become too old meanwhile
_SHORTEST: Final = 0.05
_LONGEST: Final = 0.4
#: bytes that may wait in the kernel, from where the daemon takes them: half a second of a busy link
_SEND_BUFFER: Final = 1 << 20
#: bytes that may wait in this process
_ROOM_BYTES: Final = 16 << 20
#: as a plain number: to put it together takes longer than all else that is done for a message
_FLAGS: Final = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
_WAIT: Final = (errno.EAGAIN, errno.ENOBUFS)


class Line:
    """``on_frames`` gets what the daemon sends, frame by frame, many at a time; ``on_emptied`` is called when nothing
    is left to be read, ``on_up`` when a daemon has been met, and ``on_away``, with a reason, when it is lost or cannot
    be reached; ``room`` frames may wait."""

    def __init__(
        self,
        path: str,
        room: int,
        *,
        on_frames: Callable[[list[bytes]], None],
        on_emptied: Callable[[], None],
        on_up: Callable[[], None],
        on_away: Callable[[str], None],
        call: Callable[[str | bytes], socket.socket] = dial,
    ) -> None:
        self.path = path
        self.room = room
        self._address = address_of(path)
        self._on_frames = on_frames
        self._on_emptied = on_emptied
        self._on_up = on_up
        self._on_away = on_away
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._sock: socket.socket | None = None
        #: messages that the daemon has not taken yet, each with the moment at which it was given, and their bytes
        self.waiting: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._writes = False
        self._pause = _SHORTEST
        self._retry: asyncio.TimerHandle | None = None
        #: patterns to hold, those that this daemon was asked for, and of these those that it has refused
        self._held: dict[bytes, None] = {}
        self._asked: dict[bytes, None] = {}
        self._refused: set[bytes] = set()
        #: whether this daemon knows that we take batches, and the report that it has not taken yet
        self._greeted = False
        self._report = b""
        self._closed = False

    @property
    def up(self) -> bool:
        return self._sock is not None

    def start(self) -> None:
        self._dial()

    # -- what is held

    def subscribe(self, pattern: bytes) -> None:
        self._held[pattern] = None
        self._flush()

    def unsubscribe(self, pattern: bytes) -> None:
        self._held.pop(pattern, None)
        self._flush()

    def refused(self, pattern: bytes) -> None:
        """The daemon has refused a pattern, or taken it away."""
        if pattern in self._asked:
            self._refused.add(pattern)

    def again(self) -> None:
        """Ask once more for what was refused."""
        for pattern in self._refused:
            self._asked.pop(pattern, None)
        self._refused.clear()
        self._flush()

    # -- out

    def tell(self, report: bytes) -> None:
        """Give the daemon what is about this moment, in place of what it has not taken of this kind yet."""
        if self._sock is not None:
            self._report = report
            self._flush()

    def send(self, frame: bytes, now: float) -> bool:
        """Give the daemon a message, now or as soon as it takes it; False where too many wait already."""
        if self._sock is not None and not self._writes:
            try:
                self._sock.send(frame, _FLAGS)
            except OSError as error:
                self._hindered(error)
            else:
                return True
        if len(self.waiting) >= self.room or self._size > _ROOM_BYTES:
            return False
        self.waiting.append((now, frame))
        self._size += len(frame)
        return True

    def _hindered(self, error: OSError) -> None:
        """Something could not be sent: wait for room, or give up this connection."""
        if error.errno not in _WAIT:
            self._lose(error.strerror or "it has gone")
        elif self._sock is not None and not self._writes:
            self._writes = True
            self._loop.add_writer(self._sock, self._flush)

    def _flush(self) -> None:
        """Send what the daemon has not been told or given yet, as far as it takes it."""
        sock = self._sock
        if sock is None:
            return
        try:
            self._bring_up_to_date(sock)
            while self.waiting:
                sock.send(self.waiting[0][1], _FLAGS)
                self._size -= len(self.waiting.popleft()[1])
        except OSError as error:
            self._hindered(error)
            return
        if self._writes:
            self._writes = False
            self._loop.remove_writer(sock)

    def _bring_up_to_date(self, sock: socket.socket) -> None:
        """Tell this daemon what we hold and how we are, where it does not know. Raises OSError."""
        if not self._greeted:
            sock.send(frames.request(frames.BATCH_ON), _FLAGS)
            self._greeted = True
        for pattern in [one for one in self._held if one not in self._asked]:
            sock.send(frames.subscribe(pattern), _FLAGS)
            self._asked[pattern] = None
        for pattern in [one for one in self._asked if one not in self._held]:
            if pattern not in self._refused:
                sock.send(frames.unsubscribe(pattern), _FLAGS)
            del self._asked[pattern]
            self._refused.discard(pattern)
        if self._report:
            sock.send(self._report, _FLAGS)
            self._report = b""

    def forget(self, before: float) -> int:
        """Throw away what was given before this moment and was not taken; returns how much it was."""
        count = 0
        while self.waiting and self.waiting[0][0] < before:
            self._size -= len(self.waiting.popleft()[1])
            count += 1
        return count

    # -- in

    def read(self) -> None:
        """Take what is there, up to a turn of it."""
        for _ in range(_TURN):
            sock = self._sock
            if sock is None:
                return
            try:
                size = sock.recv_into(self._buffer, 0, _FLAGS)
            except BlockingIOError:
                self._on_emptied()
                return
            except OSError as error:
                self._lose(error.strerror or "it has gone")
                return
            if not size:
                self._lose("it has closed the connection")
                return
            packet = bytes(self._view[:size])
            try:
                self._on_frames(frames.read_batch(packet) if packet.startswith(frames.MSGS) else [packet])
            except BadFrame as error:
                self._lose(f"what it sent was no frame ({error})")
                return

    # -- the daemon comes and goes

    def _dial(self) -> None:
        self._retry = None
        try:
            sock = self._call(self._address)
        except OSError as error:
            self._on_away(error.strerror or "it cannot be reached")
            self._later()
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._sock = sock
        self._loop.add_reader(sock, self.read)
        self._on_up()
        self._flush()

    def _lose(self, why: str) -> None:
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._loop.remove_reader(sock)
        if self._writes:
            self._loop.remove_writer(sock)
            self._writes = False
        sock.close()
        self._asked.clear()
        self._refused.clear()
        self._greeted = False
        self._report = b""
        self._on_away(why)
        self._later()

    def _later(self) -> None:
        if not self._closed and self._retry is None:
            self._retry = self._loop.call_later(self._pause * (0.5 + jitter() / 2), self._dial)
            self._pause = min(2 * self._pause, _LONGEST)

    def heard(self) -> None:
        """The daemon serves us: the next time that it is lost, it is called again soon."""
        self._pause = _SHORTEST

    def close(self) -> None:
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock)
            if self._writes:
                self._loop.remove_writer(sock)
            sock.close()
