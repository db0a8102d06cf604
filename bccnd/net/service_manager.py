"""The service manager: sockets and stored descriptors come in, notifications and descriptors to store go out.

The protocol is libsystemd's, called through systemd-python. It is imported only where a service manager has started
this process: without one the package may be missing and costs nothing.

Invariant: nothing here raises, and no call holds up the loop: `interrupted` cuts it off after a millisecond where the
manager stands still. What was not sent waits in a bounded queue, in order.

A descriptor is with the manager's socket when `Manager.store` returns, unless earlier notifications are still queued:
a daemon that is killed then does not lose it. A thread in between would open that window for every client.

The manager keeps descriptors up to FileDescriptorStoreMax= of the unit and closes, silently, what comes beyond it. The
variable FDSTORE (systemd 254 and later) and the unit are all that tells the number.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

from bccnd import log
from bccnd.log.interrupt import interrupted
from bccnd.net.loop import Loop, Timer

#: notifications that wait at most: those of all descriptors of 4,000 clients
MAX_WAITING: Final = 8192
#: notifications that go out in one round of the loop
ROUND: Final = 64
#: seconds until the next attempt, at first and at most
RETRY: Final = (0.002, 0.2)
#: seconds for what still waits when we leave
FAREWELL: Final = 0.2
#: bytes of a status; the manager refuses notifications of more than 4096
MAX_STATUS: Final = 1000
#: variables that the manager sets for this process alone
PRIVATE: Final = ("LISTEN_FD", "LISTEN_PID", "NOTIFY_", "WATCHDOG_")
#: of these only the latest is of interest
_LATEST: Final = ("STATUS=", "WATCHDOG=")
#: the manager does not read, or is not there for now; or the kernel has no room for descriptors that are under way
_LATER: Final = (
    *(errno.EINTR, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS),
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.ENOENT),
)


def take_sockets() -> list[tuple[str, int]]:
    """Return the descriptors that were passed to this process, each with its name, in order.

    Names are what FileDescriptorName= or FDNAME= say, and may repeat. The variables are removed, so that no child
    process takes the descriptors for its own.
    """
    daemon = _library("LISTEN_PID")
    if daemon is None:
        return []
    found: dict[int, str] = {}
    try:
        found = daemon.listen_fds_with_names(unset_environment=False)
    except OSError:  # as many names as descriptors there are not
        with contextlib.suppress(OSError):
            found = dict.fromkeys(daemon.listen_fds(unset_environment=False), "unknown")
    for name in [name for name in os.environ if name.startswith(("LISTEN_FD", "LISTEN_PID"))]:
        del os.environ[name]
    return [(name, descriptor) for descriptor, name in found.items()]


def _library(prefix: str) -> ModuleType | None:
    """Import systemd-python if the manager has set variables that begin with ``prefix``; None if it is missing."""
    if not any(name.startswith(prefix) for name in os.environ):
        return None
    try:
        from systemd import daemon
    except ImportError as error:
        # A container image may start the daemon like a service and have no libsystemd: serving goes first.
        log.event(
            "manager_silent",
            f"the service manager passes sockets or waits for notifications, and cannot be reached: {error}",
            remedy="install systemd-python (python3-systemd on Debian)",
            drop="notifications_lost",
        )
        return None
    module: ModuleType = daemon
    return module


class _Waiting(NamedTuple):
    """A notification that has not gone out, and its own copies of the descriptors that go with it."""

    message: str
    descriptors: list[int]


class Manager:
    """The service manager, if there is one; ``notify`` is that of systemd-python."""

    def __init__(self, notify: Callable[..., Any] | None = None, *, watchdog: float = 0.0, room: int = 0) -> None:
        #: whether there is a manager to notify
        self.listens = notify is not None
        #: seconds within which the manager wants a sign of life; 0: it does not
        self.watchdog = watchdog
        #: descriptors that the manager keeps; 0: unknown
        self.room = room
        #: notifications that were given up
        self.lost = 0
        self._notify: Callable[..., Any] = notify or (lambda *_words, **_more: False)
        self._queue: deque[_Waiting] = deque()
        self._loop: Loop | None = None
        self._retry: Timer | None = None
        self._pause = RETRY[0]
        self._status = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Manager:
        """The manager that has started this process, if one has."""
        daemon = _library("NOTIFY_")
        watched = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        return cls(
            None if daemon is None else daemon.notify,
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
        self._tell(f"READY=1\nSTATUS={self._status}")

    def reloading(self) -> None:
        """A reload begins; `ready` ends it."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._status = "stopping"
        self._tell("STOPPING=1\nSTATUS=stopping")

    def status(self, text: str) -> None:
        """What ``systemctl status`` shows; told only if it has changed."""
        line = _line(text)
        if line != self._status:
            self._status = line
            self._tell(f"STATUS={line}")

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        self._tell("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> None:
        """A start or a stop takes so long from now."""
        self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def store(self, name: str, *descriptors: int) -> bool:
        """Have descriptors kept under a name, over restarts and crashes; they come again with `take_sockets`.

        Returns False when they will not be: there is no manager, or too much waits for it.
        """
        # Without FDPOLL=0 a client that writes and closes during a restart would be taken out of the store unread.
        return self._tell(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", *descriptors)

    def forget(self, name: str) -> None:
        """Have all that is kept under a name closed."""
        self._tell(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def close(self) -> None:
        """Bring out what still waits, as far as it goes quickly, and be silent from now on."""
        deadline = time.monotonic() + FAREWELL
        while self._queue and time.monotonic() < deadline:
            if self._flush(ROUND):
                time.sleep(RETRY[0])
        if self._retry is not None:
            self._retry.cancel()
        while self._queue:
            _close(self._queue.popleft().descriptors)
            self._done(errno.EAGAIN)
        self.listens = False

    # -- the way out

    def _tell(self, message: str, *descriptors: int) -> bool:
        """Send a notification, or have it wait; False if it was given up."""
        if not self.listens:
            return False
        if self._loop is None:
            self._flush(ROUND)
        if not self._queue:
            failed = self._send(message, descriptors)
            if failed not in _LATER:
                return self._done(failed)
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
        if self._retry is None:
            self._try_in(self._pause)
        return True

    def _send(self, message: str, descriptors: Sequence[int]) -> int:
        """Send a notification now: 0, or the errno of why not."""
        try:
            with interrupted():
                if descriptors:
                    self._notify(message, fds=descriptors)
                else:
                    self._notify(message)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

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

    def _bring_out(self) -> None:
        """Send what waits, a round of it, and be here again for the rest."""
        self._retry = None
        failed = self._flush(ROUND)
        self._pause = min(2 * self._pause, RETRY[1]) if failed else RETRY[0]
        if self._queue:
            self._try_in(self._pause if failed else 0.0)

    def _try_in(self, seconds: float) -> None:
        if self._loop is not None:
            self._retry = self._loop.later(seconds, self._bring_out)

    def _done(self, failed: int) -> bool:
        if failed:
            self.lost += 1
            self._warn(
                f"a notification to the service manager was given up: {os.strerror(failed)}. What it shows of this "
                "daemon and what it keeps for the next one may be out of date"
            )
        return not failed

    def _warn(self, text: str) -> None:
        log.event("manager_silent", text, about="manager", drop="notifications_lost")


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _line(text: str) -> str:
    """Text as one line: a line end would begin another assignment, and what cannot be printed draws on terminals."""
    joined = "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    plain = "".join(sign if sign.isprintable() else "?" for sign in joined)
    return plain.encode()[:MAX_STATUS].decode("utf-8", "ignore")
