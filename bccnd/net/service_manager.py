"""Receives sockets from the service manager (systemd), and sends it notifications and descriptors to store.

Invariant: nothing here raises or blocks. systemd-python holds the interpreter's lock while its `notify` waits for a
stalled manager, so only the passed sockets are taken with it. Notifications that were not sent wait in a bounded queue,
in order.

When `ServiceManager.store` returns, the descriptor has been sent unless earlier notifications are queued: a daemon
killed at that moment does not lose it. A sending thread would.

The manager stores up to FileDescriptorStoreMax= descriptors and silently closes further ones. Only FDSTORE (systemd 254
and later) has the number.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from bccnd import log
from bccnd.net.loop import Loop, Timer

#: queued notifications: enough for the descriptors of 4,000 clients
MAX_QUEUED: Final = 8192
#: notifications sent in one round of the loop
MAX_PER_ROUND: Final = 64
#: seconds until the next attempt, at first and at most
RETRY: Final = (0.002, 0.2)
#: seconds for sending queued notifications at the end
CLOSE_TIMEOUT: Final = 0.2
#: bytes of a status; the manager accepts notifications of up to 4096
MAX_STATUS: Final = 1000
#: variables that the manager sets for this process alone
PRIVATE: Final = ("LISTEN_FD", "LISTEN_PID", "NOTIFY_", "WATCHDOG_")
#: of these only the latest is queued
_LATEST: Final = ("STATUS=", "WATCHDOG=")
#: the manager is stalled or restarting, or the kernel has no room for descriptors in transit
_RETRY_ERRORS: Final = (
    *(errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS),
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTCONN, errno.ENOENT),
)

#: sends a notification with descriptors. Raises OSError
Notify = Callable[[str, Sequence[int]], object]


def take_sockets() -> list[tuple[str, int]]:
    """Return the passed descriptors with their names (FileDescriptorName=, FDNAME=), in order; names may repeat.

    Removes the variables, so that child processes do not use them.
    """
    if not os.environ.get("LISTEN_PID"):
        return []
    try:
        from systemd import daemon  # a container image may set the variable and have no libsystemd
    except ImportError as error:
        text = "cannot use the sockets passed by the service manager: %s. Remedy: install systemd-python"
        log.logger.warning(f"{text} (python3-systemd on Debian)", error)
        return []
    found: dict[int, str] = {}
    try:
        found = daemon.listen_fds_with_names(unset_environment=False)
    except OSError:  # the numbers of names and descriptors differ
        with contextlib.suppress(OSError):
            found = dict.fromkeys(daemon.listen_fds(unset_environment=False), "unknown")
    for name in [name for name in os.environ if name.startswith(("LISTEN_FD", "LISTEN_PID"))]:
        del os.environ[name]
    return [(name, descriptor) for descriptor, name in found.items()]


class _Notification(NamedTuple):
    """A queued notification, with duplicates of its descriptors."""

    message: str
    descriptors: list[int]


def _notify(address: str, message: str, descriptors: Sequence[int]) -> None:
    """Send a notification to the address in NOTIFY_SOCKET, as sd_notify(3) describes. Raises OSError."""
    if address[0] == "@":
        address = "\0" + address[1:]
    elif address[0] != "/":
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.sendmsg([message.encode()], [rights], 0, address)


class ServiceManager:
    """The service manager, if there is one; ``notify`` sends a notification, or raises OSError."""

    def __init__(self, notify: Notify | None = None, *, watchdog: float = 0.0, max_stored: int = 0) -> None:
        #: whether there is a manager to notify
        self.available = notify is not None
        #: seconds of WatchdogSec=; 0 without a watchdog
        self.watchdog = watchdog
        #: descriptors that the manager stores; 0 if unknown
        self.max_stored = max_stored
        #: notifications that were dropped
        self.lost = 0
        self._notify: Notify = notify or (lambda _message, _descriptors: None)
        self._queue: deque[_Notification] = deque()
        self._loop: Loop | None = None
        self._retry: Timer | None = None
        self._pause = RETRY[0]
        self._status = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> ServiceManager:
        """Return the manager that has started this process, if any."""
        address = environ.get("NOTIFY_SOCKET", "")
        watched = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        return cls(
            partial(_notify, address) if address else None,
            watchdog=_number(environ.get("WATCHDOG_USEC", "")) / 1_000_000 if watched else 0.0,
            max_stored=_number(environ.get("FDSTORE", "")),
        )

    def attach(self, loop: Loop) -> None:
        """Let ``loop`` send queued notifications and the watchdog's."""
        self._loop = loop
        if self.available and self.watchdog:
            loop.every(self.watchdog / 2, self.ping_watchdog)
        if self._queue:
            self._send_round()

    def ready(self, status: str) -> None:
        """Report that the process serves, after a start or a reload."""
        self._status = _line(status)
        self._send_or_queue(f"READY=1\nSTATUS={self._status}")

    def reloading(self) -> None:
        """Report the beginning of a reload; `ready` ends it."""
        self._send_or_queue(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._status = "stopping"
        self._send_or_queue("STOPPING=1\nSTATUS=stopping")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows, if it has changed."""
        line = _line(text)
        if line != self._status:
            self._status = line
            self._send_or_queue(f"STATUS={line}")

    def ping_watchdog(self) -> None:
        self._send_or_queue("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> None:
        """Allow a start or a stop ``seconds`` more from now."""
        self._send_or_queue(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def store(self, name: str, *descriptors: int) -> bool:
        """Store descriptors under a name: `take_sockets` returns them after a restart or crash.

        Returns False if they will not be stored: there is no manager, or too many notifications are queued.
        """
        # Without FDPOLL=0 the connection of a client that writes and closes during a restart would be discarded unread.
        return self._send_or_queue(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", *descriptors)

    def forget(self, name: str) -> None:
        """Remove the descriptors stored under a name."""
        self._send_or_queue(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def close(self) -> None:
        """Send queued notifications within `CLOSE_TIMEOUT`, and none from now on."""
        deadline = time.monotonic() + CLOSE_TIMEOUT
        while self._queue and time.monotonic() < deadline:
            if self._send_queued(MAX_PER_ROUND):
                time.sleep(RETRY[0])
        if self._retry is not None:
            self._retry.cancel()
        while self._queue:
            _close(self._queue.popleft().descriptors)
            self._check_sent(errno.EAGAIN)
        self.available = False

    # -- sending

    def _send_or_queue(self, message: str, *descriptors: int) -> bool:
        """Send a notification, or queue it; False if it was dropped."""
        if not self.available:
            return False
        if self._loop is None:
            self._send_queued(MAX_PER_ROUND)
        if not self._queue:
            failed = self._send(message, descriptors)
            if failed not in _RETRY_ERRORS:
                return self._check_sent(failed)
        for verb in _LATEST:
            if message.startswith(verb):
                self._queue = deque(one for one in self._queue if not one.message.startswith(verb))
        if len(self._queue) >= MAX_QUEUED:
            return self._check_sent(errno.ENOBUFS)
        copies: list[int] = []
        try:
            for descriptor in descriptors:
                copies.append(os.dup(descriptor))  # noqa: PERF401 - those before a failure are closed
        except OSError as error:
            _close(copies)
            return self._check_sent(error.errno or errno.EIO)
        self._queue.append(_Notification(message, copies))
        if self._retry is None:
            self._schedule(self._pause)
        return True

    def _send(self, message: str, descriptors: Sequence[int]) -> int:
        """Send a notification; return 0 or an errno."""
        try:
            self._notify(message, descriptors)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def _send_queued(self, limit: int) -> int:
        """Send queued notifications; return 0, or the errno because of which the rest stays queued."""
        while self._queue and limit:
            failed = self._send(*self._queue[0])
            if failed in _RETRY_ERRORS:
                return failed
            self._check_sent(failed)
            _close(self._queue.popleft().descriptors)
            limit -= 1
        return 0

    def _send_round(self) -> None:
        """Send a round of queued notifications, and schedule the next."""
        self._retry = None
        failed = self._send_queued(MAX_PER_ROUND)
        self._pause = min(2 * self._pause, RETRY[1]) if failed else RETRY[0]
        if self._queue:
            self._schedule(self._pause if failed else 0.0)

    def _schedule(self, seconds: float) -> None:
        if self._loop is not None:
            self._retry = self._loop.later(seconds, self._send_round)

    def _check_sent(self, failed: int) -> bool:
        if failed:
            self.lost += 1
            text = (
                f"a notification to the service manager was dropped: {os.strerror(failed)}. The status that it shows, "
                "and the connections that it stores, may be out of date"
            )
            log.event("manager_silent", text, about="manager", drop="notifications_lost")
        return not failed


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _line(text: str) -> str:
    """Make text one printable line: a newline would begin another assignment, control characters affect terminals."""
    joined = "; ".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    plain = "".join(char if char.isprintable() else "?" for char in joined)
    return plain.encode()[:MAX_STATUS].decode("utf-8", "ignore")
