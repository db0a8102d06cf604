"""Where the lines of the log go: to the journal through systemd-python, or to a terminal, a file or a pipe.

Invariant: nothing here waits for whoever reads. What does not go now goes nowhere, and `put` says so.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import socket
import stat
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from bccnd.net.events import EVENTS
from bccnd.net.interrupt import interrupted

#: what a field may hold; text goes out as UTF-8, bytes as they are
Value = str | bytes | int | float

#: where the journal listens, on every host that has one
SOCKET: Final = "/run/systemd/journal/socket"
#: entries of other threads that wait for the main thread
MAX_HANDED: Final = 1000
#: seconds without an attempt after the journal did not take an entry
PAUSE: Final = 0.02
#: seconds between two looks whether the journal has read
_LOOK: Final = 0.005
#: seconds that it takes the journal, once it has read an entry, to look at who sent it
_GRACE: Final = 0.05
#: bytes that a pipe takes in one piece or not at all (Linux)
_PIECE: Final = 4096
#: syslog's numbers for logging's
_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


def of_event(record: logging.LogRecord) -> tuple[str, str, Mapping[str, Value]]:
    """The event of a record, its remedy and its fields, as `log.say` gives them by ``extra``; empty for other lines."""
    return getattr(record, "event", ""), getattr(record, "remedy", ""), getattr(record, "fields", {})


class Output(Protocol):
    """Where lines go. ``put`` is False for one that does not go now."""

    def put(self, record: logging.LogRecord, text: str) -> bool: ...

    def flush(self) -> None: ...

    def settle(self, patience: float) -> None: ...


class ToJournal:
    """The journal itself, each line an entry with its fields.

    A journal that stands still holds up whoever logs for a millisecond every `PAUSE` at most. Only calls of the main
    thread can be cut off: what other threads log waits for its next line, or `flush`. Raises ImportError, OSError.
    """

    def __init__(self, program: str) -> None:
        # Loaded only where there is a journal; a container image may have no libsystemd.
        from systemd import journal

        os.stat(SOCKET)  # libsystemd drops entries silently where there is none
        self._sendv: Callable[..., None] = journal.sendv
        self._program = program
        self._handed: deque[list[bytes]] = deque()
        self._again = 0.0

    def put(self, record: logging.LogRecord, text: str) -> bool:
        entry = self._entry(record, text)
        if threading.current_thread() is not threading.main_thread():
            if len(self._handed) >= MAX_HANDED:
                return False
            self._handed.append(entry)
            return True
        self.flush()
        return not self._handed and self._send(entry)

    def _entry(self, record: logging.LogRecord, text: str) -> list[bytes]:
        fields: list[tuple[str, Value]] = [
            ("MESSAGE", text),
            ("PRIORITY", _PRIORITIES.get(record.levelno, 6)),
            ("SYSLOG_IDENTIFIER", self._program),
        ]
        event, remedy, more = of_event(record)
        if event:
            known = EVENTS.get(event)
            if known is not None:
                fields.append(("MESSAGE_ID", known.id))
            fields.append(("BCCND_EVENT", event))
            if remedy:
                fields.append(("BCCND_REMEDY", remedy))
            fields += [(f"BCCND_{name.upper()}", value) for name, value in more.items()]
        return [b"%b=%b" % (name.encode("ascii"), _bytes(value)) for name, value in fields]

    def _send(self, entry: list[bytes]) -> bool:
        """Hand an entry over; False when it does not go now, and then it is nowhere."""
        if time.monotonic() < self._again:
            return False
        try:
            with interrupted():
                self._sendv(*entry)
        except OSError:
            self._again = time.monotonic() + PAUSE
            return False
        return True

    def flush(self) -> None:
        """Send what other threads have logged; in the main thread."""
        while self._handed and self._send(self._handed[0]):
            self._handed.popleft()

    def settle(self, patience: float) -> None:
        """Wait until the journal has read what was sent, no longer than ``patience`` seconds.

        For a process that is about to end: an entry whose sender is gone cannot be attributed to its service any more.
        """
        self.flush()
        deadline = time.monotonic() + patience
        while _unread() and time.monotonic() < deadline:
            time.sleep(_LOOK)
        time.sleep(_GRACE)


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")


def _unread() -> bool:
    """Whether a datagram that this process has sent to a Unix socket was not read: the socket is libsystemd's own."""
    from systemd.daemon import is_socket

    for name in os.listdir("/proc/self/fd"):
        try:
            if is_socket(int(name), socket.AF_UNIX, socket.SOCK_DGRAM):
                (size,) = struct.unpack("=i", fcntl.ioctl(int(name), termios.TIOCOUTQ, b"\0" * 4))
                if size:
                    return True
        except OSError:  # the one by which the folder was read
            continue
    return False


def is_journal(fd: int) -> bool:
    """Whether a descriptor is the one by which the service manager has connected this process to the journal."""
    try:
        info = os.fstat(fd)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{info.st_dev}:{info.st_ino}"


class ToStream:
    """A descriptor: a terminal, a file, a pipe, or a journal that takes nothing else."""

    def __init__(self, program: str, fd: int, prefixed: bool) -> None:
        self._program = program
        self._fd = fd
        self._prefixed = prefixed
        #: of a line that has gone out in part
        self._rest = b""

    def put(self, record: logging.LogRecord, text: str) -> bool:
        line = self._line(record, text).encode("utf-8", "backslashreplace")
        self._rest = self._rest[_write(self._fd, self._rest) :] if self._rest else b""
        if self._rest:
            return False
        taken = _write(self._fd, line)
        if taken:
            self._rest = line[taken:]
        return taken > 0

    def _line(self, record: logging.LogRecord, text: str) -> str:
        if self._prefixed:
            lines = " ".join(line.strip() for line in text.split("\n"))
            return f"<{_PRIORITIES.get(record.levelno, 6)}>{lines}\n"
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        lines = text.replace("\n", "\n  ")
        return f"{stamp} {self._program} {record.levelname.lower()}: {lines}\n"

    def flush(self) -> None:
        """Nothing waits here."""

    def settle(self, patience: float) -> None:
        """What went out here is there."""


def _write(fd: int, data: bytes) -> int:
    """Write what goes without waiting; how many bytes that were."""
    try:
        own = _reopened(fd)
        if own < 0:
            return _write_pieces(fd, data)
        try:
            return os.write(own, data)
        finally:
            os.close(own)
    except OSError:
        return 0


def _reopened(fd: int) -> int:
    """A terminal or a pipe once more, such that it does not make us wait; that is an affair of this opening alone and
    changes nothing for others who write to it. Less than 0 where it cannot be had."""
    mode = os.fstat(fd).st_mode
    if not stat.S_ISCHR(mode) and not stat.S_ISFIFO(mode):
        return -1
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1


def _write_pieces(fd: int, data: bytes) -> int:
    """Write in pieces so small that there is room for one where there is room at all."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    done = 0
    while done < len(data) and poll.poll(0):
        try:
            done += os.write(fd, data[done : done + _PIECE])
        except OSError:
            break
    return done
