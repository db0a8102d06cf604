"""The socket of a connection to the daemon: connecting, reading and sending, without waiting; and, on top of that, a
transport for asyncio that keeps a session connected.

The blocking client and the recorder wait for the same socket with poll and with the recorder's own loop.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from bccnd import paths
from bccnd.client.outgoing import Outgoing
from bccnd.client.session import Session
from bccnd.compiled_modules import find_library
from bccnd.core.formats.bus_address import MAX_PATH, read_address
from bccnd.core.wire import frames
from bccnd.errors import BadAddress, BadFrame, BusError

if TYPE_CHECKING:
    import asyncio

#: the largest packet of the bus, and the details of its sender that the daemon may add
BUFFER: Final = frames.MAX_PACKET + 4096
#: as plain numbers, which take less time to pass
_SEND_FLAGS: Final = int(socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
_NO_WAIT: Final = int(socket.MSG_DONTWAIT)
#: milliseconds; poll takes no more
_LONGEST_POLL: Final = 2**31 - 1
#: packets read at once, before other callbacks of the loop have their turn
MOST: Final = 32

#: takes a packet, when it came (monotonic, seconds), and the wall clock then (nanoseconds)
Feed = Callable[[bytes, float, int], None]


def usual_path() -> str:
    """Where the daemon is by default."""
    return os.environ.get("BCCN_SOCKET") or paths.DEFAULT_SOCKET


def address_of(path: str) -> str | bytes:
    """The address of a path for the kernel, wherever this program changes its directory to. Raises BusError."""
    try:
        address = read_address(path)
    except BadAddress as bad:
        reason = "no_daemon" if bad.reason == "too_long" else "bad_address"
        raise BusError(reason, f"cannot reach the daemon at {path}: {bad.detail}") from bad
    if isinstance(address, int):
        raise BusError("bad_address", f"{path} is a descriptor, where only a daemon could be listening")
    if isinstance(address, str):
        absolute = os.path.abspath(address)
        return absolute if len(os.fsencode(absolute)) <= MAX_PATH else address
    return address


def unreachable(path: str, error: OSError) -> BusError:
    return BusError("no_daemon", f"cannot reach the daemon at {path}: {error.strerror or error}")


def dial(address: str | bytes) -> socket.socket:
    """A connected socket, for calls that do not block unless they are to. Raises OSError; BlockingIOError where the
    backlog of the listener is full."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        sock.connect(address)
        sock.setblocking(True)
    except BaseException:
        sock.close()
        raise
    return sock


def give(sock: socket.socket, frame: bytes) -> None:
    """Send a frame; for a large one, which the kernel does not take by itself, room is made. Raises OSError;
    BlockingIOError where the socket is full."""
    try:
        sock.send(frame, _SEND_FLAGS)
    except OSError as error:
        if error.errno == errno.ENOBUFS:
            raise BlockingIOError(errno.EAGAIN, "no buffers") from error
        if error.errno != errno.EMSGSIZE or len(frame) > frames.MAX_PACKET:
            raise
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, frames.MAX_PACKET)
        sock.send(frame, _SEND_FLAGS)


def jitter() -> float:
    """A random float in [0, 1]."""
    return os.urandom(1)[0] / 255


class ReceivedPackets:
    """Reads packets from a socket, several with one system call where there is the compiled library."""

    def __init__(self) -> None:
        self._batch: Any = None
        if find_library():
            from bccnd.native.system.packet_batch import PacketBatch  # loaded by programs that need it

            self._batch = PacketBatch(BUFFER, MOST)

    def read(self, sock: socket.socket, most: int = MOST, wait: bool = False) -> list[bytes]:
        """The packets that are there, up to ``most``, and an empty one at the end; with ``wait``, wait for one, or for
        a signal. Raises OSError; BlockingIOError where there is none."""
        try:
            return self._receive(sock, most, wait)
        except ConnectionResetError:  # reported once; what the daemon sent before its end is still there
            return self._receive(sock, most, wait)

    def _receive(self, sock: socket.socket, most: int, wait: bool) -> list[bytes]:
        if self._batch is None:
            return [sock.recv(BUFFER, 0 if wait else _NO_WAIT)]
        packets: list[bytes] = self._batch.receive(sock.fileno(), most, wait)
        return packets


class SessionSocket:
    """Moves packets between a session and its socket. ``feed`` takes packets in place of `Session.feed`, for those that
    want them raw."""

    def __init__(self, session: Session, feed: Feed | None = None, *, send_buffer: int = 0) -> None:
        self.session = session
        self.sock: socket.socket | None = None
        self.closed = False
        self._address = address_of(session.path)
        self._feed = feed or session.feed
        self._send_buffer = send_buffer
        self._read = ReceivedPackets().read
        #: what was read and not passed on yet
        self._unread: Iterator[bytes] = iter(())
        #: when the connection was last known to be there
        self._known = time.monotonic()

    def connect(self) -> None:
        """Connect now. Raises OSError."""
        self.sock = dial(self._address)
        if self._send_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        self._known = time.monotonic()
        self.session.connected()

    def reconnect(self) -> None:
        """Try to connect; on failure the session schedules the next attempt."""
        try:
            self.connect()
        except OSError as error:
            self.session.connect_failed(error.strerror or str(error), time.monotonic(), jitter())

    def send_now(self, frame: bytes) -> bool:
        """Send a frame, if nothing else has to be sent before it; whether it was taken. Raises BusError: too_long;
        connection_lost where this is over."""
        sock, session = self.sock, self.session
        if sock is None or not session.ready or session.has_data:
            session.check()
            return False
        try:
            give(sock, frame)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise _too_long(frame) from error
            self.lose(error.strerror or str(error))
            session.check()
            return False
        return True

    def send_many_now(self, packets: list[bytes]) -> int:
        """Send frames, if nothing else has to be sent before them; returns how many were taken. `send_now` says why the
        next one was not."""
        sock, session = self.sock, self.session
        if sock is None or not session.ready or session.has_data:
            return 0
        if not find_library():
            return sum(1 for _ in takewhile(self.send_now, packets))
        from bccnd.native.system.sockio import Sender  # loaded by programs that need it, and by no others

        sender = Sender()
        sender.load(packets)
        taken: int = sender.send(sock.fileno())
        return taken

    def flush(self) -> None:
        """Send what is due, as far as the socket takes it."""
        sock = self.sock
        if sock is None:
            return
        try:
            for frame in self.session.data_to_send():
                try:
                    give(sock, frame)
                except OSError as error:
                    if error.errno != errno.EMSGSIZE:
                        raise
                    self.session.refuse_head(_too_long(frame))
        except BlockingIOError:
            pass
        except OSError as error:
            self.lose(error.strerror or str(error))

    def receive(self, most: int = MOST, *, wait: bool = False) -> int:
        """Take in the packets that are there, up to ``most``; returns how many. With ``wait``, wait for one without
        limit, or for a signal."""
        sock = self.sock
        if sock is None:
            return 0
        try:
            packets = self._read(sock, most, wait)
        except BlockingIOError:
            self._known = time.monotonic()
            return 0
        except OSError as error:
            if wait:
                self._known = time.monotonic()
            self.lose(error.strerror or str(error))
            return 1
        feed, now, clock_ns = self._feed, time.monotonic(), time.time_ns()
        if wait:
            self._known = now
        self._unread = iter(packets)
        if len(packets) > 1:
            self.session.router.begin_read()
        try:
            for packet in self._unread:
                if packet:
                    feed(packet, now, clock_ns)
                else:
                    self.lose("it has closed the connection", rest=False)
                if self.sock is not sock:
                    break
        except BadFrame as error:
            self.lose(f"what it sent was no frame ({error})", rest=False)
        finally:
            self.session.router.end_read()
        return len(packets)

    def wait(self, seconds: float | None, *, reads: bool) -> None:
        """Wait for a packet, if ``reads``, and for room if there is something to send."""
        timeout = None if seconds is None else min(seconds * 1000, _LONGEST_POLL)
        events = select.POLLIN * reads | select.POLLOUT * self.session.has_data
        poll = select.poll()
        if (sock := self.sock) is not None:
            with suppress(ValueError):  # a signal handler has closed it just now
                poll.register(sock, events)
        if not self.closed:
            poll.poll(timeout)
        if self.sock is not None:
            self._known = time.monotonic()

    def lose(self, why: str, *, rest: bool = True) -> None:
        """The connection has ended; what had come before is still taken in, if there may be any."""
        sock = self.sock
        if sock is None:
            return
        with suppress(OSError, BadFrame):
            while rest:
                for packet in self._unread:
                    if not packet:
                        rest = False
                    else:
                        self._feed(packet, time.monotonic(), time.time_ns())
                if rest:
                    self._unread = iter(self._read(sock))
        if self.sock is not sock:  # it was lost meanwhile
            return
        self.sock = None
        sock.close()
        now = time.monotonic()
        self.session.disconnected(why, self._known, now, jitter())

    def close(self) -> None:
        self.closed = True
        if self.sock is not None:
            self.sock.close()
            self.sock = None


def _too_long(frame: bytes) -> BusError:
    return BusError("too_long", f"{len(frame)} bytes are more than the socket takes")


class Transport(SessionSocket):
    """Keeps a session connected on an asyncio loop, by callbacks alone: there is no task to be left behind.

    ``on_turn`` is called when packets were read or sent or the connection has come or gone, ``on_empty`` when nothing
    is left to be read. ``room`` returns how many packets may be read; it is passed whether packets are read now. While
    that is 0 the daemon queues or drops; call `arrange` when it changes.
    """

    def __init__(
        self,
        session: Session,
        loop: asyncio.AbstractEventLoop,
        on_turn: Callable[[], None],
        *,
        feed: Feed | None = None,
        on_empty: Callable[[], None] = lambda: None,
        room: Callable[[bool], int] = lambda _reads: MOST,
        send_buffer: int = 0,
    ) -> None:
        super().__init__(session, feed, send_buffer=send_buffer)
        #: whether the loop watches for packets, and for room to send
        self.reads = self._writes = False
        self._loop = loop
        self._on_turn = on_turn
        self._on_empty = on_empty
        self._room = room
        self._timer: asyncio.TimerHandle | None = None

    def send(self, outgoing: Outgoing) -> None:
        """Send a frame, behind those that wait. Raises ConnectionLost where this is over."""
        self.session.enqueue(outgoing, time.monotonic())
        self.flush()

    def flush(self) -> None:
        super().flush()
        self._on_turn()
        self.arrange()

    def on_readable(self) -> None:
        """Take in what is there, a turn of it."""
        ready, most = self.session.ready, self._room(self.reads)
        if most and self.receive(most) < most and self.sock is not None:
            self._on_empty()
        if self.session.ready != ready:
            self.flush()
        self._on_turn()
        if not most or self.sock is None or self.session.has_data is not self._writes:
            self.arrange()

    def lose(self, why: str, *, rest: bool = True) -> None:
        sock = self.sock
        if sock is None:
            return
        if self.reads:  # the loop would have reported the end at once
            self._known = time.monotonic()
        self._unwatch(sock)
        super().lose(why, rest=rest)
        self._loop.call_soon(self._after_loss)

    def _after_loss(self) -> None:
        if not self.closed:
            self._on_turn()
            self.arrange()

    def open(self) -> None:
        """Connect; where that fails, again and again."""
        self._on_timer()

    def _on_timer(self) -> None:
        self._timer = None
        now = time.monotonic()
        self.session.expire(now)
        if self.session.may_connect(now):
            self.reconnect()
            self.flush()
            self._on_turn()
        self.arrange()

    def arrange(self) -> None:
        """Have the loop watch for what can be done next."""
        if self.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self.session.next_timeout(time.monotonic()) if self.sock is None or not self.session.ready else None
        if wait is not None:
            self._timer = self._loop.call_later(wait, self._on_timer)
        sock = self.sock
        if sock is None:
            return
        reads, writes = self._room(self.reads) > 0, self.session.has_data
        if reads != self.reads:
            self._known = time.monotonic()
            (self._loop.add_reader(sock, self.on_readable) if reads else self._loop.remove_reader(sock))
        if writes != self._writes:
            (self._loop.add_writer(sock, self.flush) if writes else self._loop.remove_writer(sock))
        self.reads, self._writes = reads, writes

    def _unwatch(self, sock: socket.socket) -> None:
        if self.reads:
            self._loop.remove_reader(sock)
        if self._writes:
            self._loop.remove_writer(sock)
        self.reads = self._writes = False

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.sock is not None:
            self._unwatch(self.sock)
        super().close()
