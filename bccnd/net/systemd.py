"""What passes between us and the service manager: descriptors in, notifications and descriptors out.

Law: nothing here raises, and nothing blocks the loop: what the manager does not take at once waits, in order, in a
queue that is bounded. Without a manager nothing happens. Source: sd_listen_fds(3), sd_notify(3).

The manager keeps descriptors up to FileDescriptorStoreMax= of the unit and closes, silently, what comes beyond it. The
variable FDSTORE (systemd 254 and later) and the unit are all that tells the number.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Final, NamedTuple

from bccnd.net import log
from bccnd.net.loop import WRITABLE, Loop, Timer

#: the first descriptor that is passed
FIRST: Final = 3
#: descriptors that are believed to have been passed; the kernel's own limit for a process
MAX_PASSED: Final = 1 << 20
#: notifications that wait at most: those of all descriptors of 4,000 clients
MAX_WAITING: Final = 8192
#: notifications that go out in one round of the loop
ROUND: Final = 64
#: seconds until the next attempt where the kernel does not tell when there is room
RETRY: Final = 0.1
#: seconds for what still waits when we leave
FAREWELL: Final = 0.2
#: bytes of a status; the manager refuses notifications of more than 4096
MAX_STATUS: Final = 1000
#: of these only the latest is of interest
_LATEST: Final = (b"STATUS=", b"WATCHDOG=")
#: nobody is at the other end, for the moment or for good
_ABSENT: Final = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.ENOENT)
#: the kernel has no room: for the message, or for descriptors that are under way
_LATER: Final = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS, *_ABSENT)


def take_sockets(environ: MutableMapping[str, str] = os.environ) -> list[tuple[str, int]]:
    """The descriptors that were passed to this process, each with its name, in the order in which they came.

    Names are what FileDescriptorName= or FDNAME= say, and may repeat. No process that we start will take them for its
    own: the variables are removed.
    """
    pid, count, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if _number(pid) != os.getpid():
        return []
    descriptors = range(FIRST, FIRST + min(_number(count), MAX_PASSED))
    called = names.split(":")
    if len(called) != len(descriptors):
        called = ["unknown"] * len(descriptors)
    taken = []
    for name, descriptor in zip(called, descriptors, strict=True):
        with contextlib.suppress(OSError):  # one that is not open
            os.set_inheritable(descriptor, False)
            taken.append((name, descriptor))
    return taken


class _Waiting(NamedTuple):
    """A notification that has not gone out, and its own copies of the descriptors that go with it."""

    message: bytes
    descriptors: list[int]


class Manager:
    """The service manager, as far as it wants to hear of us."""

    def __init__(self, address: str = "", *, watchdog: float = 0.0, room: int = 0) -> None:
        #: whether there is anybody to tell
        self.listens = address.startswith(("/", "@"))
        #: seconds within which the manager wants a sign of life; 0: it does not
        self.watchdog = watchdog
        #: descriptors that the manager keeps; 0: unknown
        self.room = room
        #: notifications that were given up
        self.lost = 0
        self._queue: deque[_Waiting] = deque()
        self._loop: Loop | None = None
        self._retry: Timer | None = None
        self._status = b""
        self._limited = log.Limited()
        self._address = b"\0" + os.fsencode(address[1:]) if address.startswith("@") else os.fsencode(address)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._connected = False
        if address and not self.listens:
            self._warn(f"no notification reaches {address!r} of NOTIFY_SOCKET: it is neither a path nor @name")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Manager:
        """The manager that has started this process, if one has."""
        watched = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        return cls(
            environ.get("NOTIFY_SOCKET", ""),
            watchdog=_number(environ.get("WATCHDOG_USEC", "")) / 1_000_000 if watched else 0.0,
            room=_number(environ.get("FDSTORE", "")),
        )

    def attach(self, loop: Loop) -> None:
        """From now on ``loop`` brings out what waits, and proves that it turns as often as the watchdog wants it."""
        self._loop = loop
        if self.listens and self.watchdog:
            loop.every(self.watchdog / 2, self.alive)
        if self._queue:
            self._bring_out()

    def ready(self, status: str) -> None:
        """We serve, for the first time or after a reload; ``status`` says so to people."""
        self._status = _line(status)
        self._tell(b"READY=1\nSTATUS=" + self._status)

    def reloading(self) -> None:
        """A reload begins; `ready` ends it."""
        self._tell(b"RELOADING=1\nMONOTONIC_USEC=%d" % (time.monotonic_ns() // 1000))

    def stopping(self) -> None:
        self._status = b"stopping"
        self._tell(b"STOPPING=1\nSTATUS=" + self._status)

    def status(self, text: str) -> None:
        """What ``systemctl status`` shows; told only if it has changed."""
        line = _line(text)
        if line != self._status:
            self._status = line
            self._tell(b"STATUS=" + line)

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        self._tell(b"WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> None:
        """A start or a stop takes so long from now."""
        self._tell(b"EXTEND_TIMEOUT_USEC=%d" % int(seconds * 1_000_000))

    def store(self, name: str, *descriptors: int) -> bool:
        """Have descriptors kept under a name, over restarts and crashes; they come again with `take_sockets`.

        Returns False when they will not be: there is no manager, or too much waits for it.
        """
        # Without FDPOLL=0 a client that writes and closes during a restart would be taken out of the store unread.
        return self._tell(b"FDSTORE=1\nFDNAME=%b\nFDPOLL=0" % name.encode(), *descriptors)

    def forget(self, name: str) -> None:
        """Have all that is kept under a name closed."""
        self._tell(b"FDSTOREREMOVE=1\nFDNAME=%b" % name.encode())

    def close(self) -> None:
        """Bring out what still waits, as far as it goes quickly, and be silent from now on."""
        if not self.listens:
            self._sock.close()
            return
        deadline = time.monotonic() + FAREWELL
        room = select.poll()
        room.register(self._sock, select.POLLOUT)
        while self._queue and (left := deadline - time.monotonic()) > 0:
            failed = self._flush(ROUND)
            if failed == errno.EAGAIN:
                room.poll(left * 1000)
            elif failed:
                time.sleep(min(left, RETRY))
        if self._retry is not None:
            self._retry.cancel()
        if self._loop is not None:
            self._loop.unwatch(self._sock.fileno())
        while self._queue:
            _close(self._queue.popleft().descriptors)
            self._done(errno.EAGAIN)
        self._sock.close()
        self.listens = False

    # -- the way out

    def _tell(self, message: bytes, *descriptors: int) -> bool:
        """Send a notification, or have it wait; False if it was given up."""
        if not self.listens:
            return False
        if not self._queue:
            failed = self._send(message, descriptors)
            if failed not in _LATER:
                return self._done(failed)
            self._watch(failed)
        for verb in _LATEST:
            if message.startswith(verb):
                self._queue = deque(one for one in self._queue if not one.message.startswith(verb))
        if len(self._queue) >= MAX_WAITING:
            return self._done(errno.ENOBUFS)
        copies: list[int] = []
        try:
            for descriptor in descriptors:
                copies.append(os.dup(descriptor))  # noqa: PERF401 - those before a failure are to be closed
        except OSError as error:
            _close(copies)
            return self._done(error.errno or errno.EIO)
        self._queue.append(_Waiting(message, copies))
        return True

    def _send(self, message: bytes, descriptors: Sequence[int]) -> int:
        """Send a notification now: 0, or the errno of why not."""
        sock, failed = self._sock, errno.ENOTCONN
        for _ in range(2):
            try:
                if not self._connected:
                    # Connected, the kernel tells when there is room at the other end. That may come anew.
                    sock.connect(self._address)
                    self._connected = True
                if descriptors:
                    socket.send_fds(sock, [message], descriptors, socket.MSG_NOSIGNAL)
                else:
                    sock.send(message, socket.MSG_NOSIGNAL)
            except OSError as error:
                failed = error.errno or errno.EIO
                if failed not in _ABSENT:
                    return failed
                self._connected = False
            else:
                return 0
        return failed

    def _flush(self, most: int) -> int:
        """Send what waits: 0, or the errno of why the rest has to wait on."""
        while self._queue and most:
            failed = self._send(*self._queue[0])
            if failed in _LATER:
                return failed
            self._done(failed)
            _close(self._queue.popleft().descriptors)
            most -= 1
        return 0

    def _bring_out(self, _events: int = 0) -> None:
        """Send what waits, a round of it, and be here again for the rest."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._watch(self._flush(ROUND))

    def _watch(self, failed: int) -> None:
        """See to it that what waits is tried again: when there is room, or in a while."""
        if self._loop is None:
            return
        descriptor = self._sock.fileno()
        if failed in (0, errno.EAGAIN) and (failed or self._queue):
            if not self._loop.watches(descriptor):
                self._loop.watch(descriptor, WRITABLE, self._bring_out)
            return
        self._loop.unwatch(descriptor)
        if failed and self._retry is None:
            self._retry = self._loop.later(RETRY, self._bring_out)

    def _done(self, failed: int) -> bool:
        if failed:
            self.lost += 1
            self._warn(
                f"a notification to the service manager was given up: {os.strerror(failed)}. What it shows of this "
                "daemon and what it keeps for the next one may be out of date"
            )
        return not failed

    def _warn(self, text: str) -> None:
        self._limited.say("manager", "manager_silent", text, drop="notifications_lost")


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _line(text: str) -> bytes:
    """Text as one line: a line end would begin another assignment, and what cannot be printed draws on terminals."""
    joined = "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    plain = "".join(sign if sign.isprintable() else "?" for sign in joined)
    return plain.encode()[:MAX_STATUS].decode("utf-8", "ignore").encode()
