"""Log handlers: systemd's journal, a terminal through rich, files and pipes, a ring of recent lines in memory.

Invariant: no handler waits for its reader. A line that cannot be written at once is dropped and counted; the next one
that can be written is preceded by the count.
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
from collections.abc import Callable, Iterator
from typing import IO, Final, NamedTuple, cast

from bccnd.log.events import EVENTS
from bccnd.log.libsystemd_timeout import libsystemd_timeout

#: what a field may hold; text goes out as UTF-8, bytes as they are
Value = str | bytes | int | float

#: the journal's socket
SOCKET: Final = "/run/systemd/journal/socket"
#: entries of other threads that wait for the main thread
MAX_PENDING: Final = 1000
#: seconds between two attempts while the journal accepts no entries
PAUSE: Final = 0.02
#: lines kept in memory, and characters of each: a few hundred kB at most
RECENT: Final = 100
MAX_RECENT: Final = 2000
#: seconds between two checks whether the journal has read everything
_POLL_INTERVAL: Final = 0.005
#: seconds that the journal takes to look up an entry's sender after reading it
_LOOKUP_TIME: Final = 0.05
#: bytes that a pipe accepts atomically (PIPE_BUF)
_PIPE_BUF: Final = 4096
#: syslog's numbers for logging's
_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}

#: lines of this process that could not be written
lines_lost: Final = {"lines_lost": 0}


def printable(text: str) -> str:
    """Escape control characters: a terminal could execute them, or a reader take them for another line."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode("ascii") for one in text
    )


class _Formatter(logging.Formatter):
    """The message with its remedy and its traceback; ``prefix`` as for `logging.Formatter`."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__(f"{prefix}%(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        text = super().formatMessage(record)
        remedy = getattr(record, "remedy", "")
        # A text that lists several faults has a remedy after each of them.
        return f"{text}. Remedy: {remedy}" if remedy and "\n  remedy: " not in text else text

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _StreamFormatter(_Formatter):
    """Lines for people: the time, the program, the level; more lines of one text are indented."""

    def __init__(self, program: str) -> None:
        super().__init__(f"%(asctime)s {program} %(level)s: ")

    def format(self, record: logging.LogRecord) -> str:
        record.level = record.levelname.lower()
        return super().format(record).replace("\n", "\n  ")


class _PrefixedFormatter(_Formatter):
    """One line with its level, as the service manager reads it from a program's standard error."""

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(line.strip() for line in super().format(record).split("\n"))
        return f"<{_PRIORITIES.get(record.levelno, 6)}>{text}"


def _lines_lost_record(count: int) -> logging.LogRecord:
    event = EVENTS["lines_lost"]
    text = f"{count} log lines are missing here: the reader of the log did not accept them (lines_lost)"
    record = logging.LogRecord("bccnd", event.level, __file__, 0, text, None, None)
    record.event = event.name
    record.remedy = "check that the reader of the log runs and has room (systemctl status systemd-journald)"
    record.fields = {"count": count, "drop": "lines_lost"}
    return record


# -- the journal


class JournalHandler(logging.Handler):
    """Sends each record to the journal as an entry with its fields. Raises ImportError, OSError.

    A stalled journal delays the process by at most a millisecond every `PAUSE`. Only the main thread can time out:
    records of other threads wait for its next record, or for `flush`.
    """

    def __init__(self, program: str) -> None:
        # Loaded only where there is a journal; a container image may have no libsystemd.
        from systemd import journal

        super().__init__()
        os.stat(SOCKET)  # libsystemd drops entries silently where there is none
        self.formatter = _Formatter()
        self._sendv: Callable[..., None] = journal.sendv
        self._program = program
        self._pending: deque[list[bytes]] = deque()
        self._retry_at = 0.0
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost and self._put(self._entry(_lines_lost_record(self._lost))):
            self._lost = 0
        if self._lost or not self._put(self._entry(record)):
            self._lost += 1
            lines_lost["lines_lost"] += 1

    def _put(self, entry: list[bytes]) -> bool:
        if threading.current_thread() is not threading.main_thread():
            if len(self._pending) >= MAX_PENDING:
                return False
            self._pending.append(entry)
            return True
        self.flush()
        return not self._pending and self._send(entry)

    def _entry(self, record: logging.LogRecord) -> list[bytes]:
        fields: dict[str, Value] = {"MESSAGE": self.format(record), "PRIORITY": _PRIORITIES.get(record.levelno, 6)}
        fields["SYSLOG_IDENTIFIER"] = self._program
        event: str = getattr(record, "event", "")
        if event:
            fields |= {"MESSAGE_ID": EVENTS[event].id, "BCCND_EVENT": event}
            if remedy := getattr(record, "remedy", ""):
                fields["BCCND_REMEDY"] = remedy
            fields |= {f"BCCND_{name.upper()}": value for name, value in getattr(record, "fields", {}).items()}
        return [b"%b=%b" % (name.encode("ascii"), _bytes(value)) for name, value in fields.items()]

    def _send(self, entry: list[bytes]) -> bool:
        if time.monotonic() < self._retry_at:
            return False
        try:
            with libsystemd_timeout():
                self._sendv(*entry)
        except OSError:
            self._retry_at = time.monotonic() + PAUSE
            return False
        return True

    def flush(self) -> None:
        """Send the records of other threads; to be called in the main thread."""
        while self._pending and self._send(self._pending[0]):
            self._pending.popleft()

    def wait_until_read(self, timeout: float) -> None:
        """Wait until the journal has read everything, at most ``timeout`` seconds.

        The journal cannot attribute an entry to a service if its process has exited.
        """
        self.flush()
        deadline = time.monotonic() + timeout
        while _unread() and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)
        time.sleep(_LOOKUP_TIME)


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")


def _unread() -> bool:
    """Whether a Unix datagram of this process is unread. The socket is libsystemd's own, so all are checked."""
    from systemd.daemon import is_socket

    for name in os.listdir("/proc/self/fd"):
        try:
            if is_socket(int(name), socket.AF_UNIX, socket.SOCK_DGRAM):
                (size,) = struct.unpack("=i", fcntl.ioctl(int(name), termios.TIOCOUTQ, b"\0" * 4))
                if size:
                    return True
        except OSError:  # the descriptor of the listing itself
            continue
    return False


def is_journal(fd: int) -> bool:
    """Whether the service manager has connected a descriptor to the journal."""
    try:
        info = os.fstat(fd)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{info.st_dev}:{info.st_ino}"


# -- a terminal, a file, a pipe


def stream_handler(program: str, fd: int, *, prefixed: bool = False) -> logging.Handler:
    """Return a handler that writes lines to a descriptor: coloured on a terminal, ``prefixed`` for a journal."""
    if os.isatty(fd) and not prefixed:
        from rich.console import Console
        from rich.highlighter import NullHighlighter
        from rich.logging import RichHandler

        formatter = _Formatter()
        stream = cast(IO[str], _DroppingStream(fd, formatter))
        console = Console(file=stream, force_terminal=True, soft_wrap=True)
        handler: logging.Handler = RichHandler(
            console=console, show_path=False, log_time_format="%H:%M:%S", highlighter=NullHighlighter()
        )
    else:
        formatter = _PrefixedFormatter() if prefixed else _StreamFormatter(program)
        handler = logging.StreamHandler(_DroppingStream(fd, formatter))
    handler.setFormatter(formatter)
    return handler


class _DroppingStream:
    """A text stream on a descriptor; drops what cannot be written without waiting."""

    encoding: Final = "utf-8"

    def __init__(self, fd: int, formatter: logging.Formatter) -> None:
        self._fd = fd
        self._formatter = formatter
        self._lost = 0
        #: the rest of a line that was written in part
        self._rest = b""

    def write(self, text: str) -> int:
        if self._lost and self._put(f"{self._formatter.format(_lines_lost_record(self._lost))}\n"):
            self._lost = 0
        if self._lost or not self._put(text):
            self._lost += 1
            lines_lost["lines_lost"] += 1
        return len(text)

    def _put(self, text: str) -> bool:
        if self._rest:
            self._rest = self._rest[_write(self._fd, self._rest) :]
        if self._rest:
            return False
        line = text.encode("utf-8", "backslashreplace")
        taken = _write(self._fd, line)
        if taken:
            self._rest = line[taken:]
        return taken > 0

    def flush(self) -> None:
        """Do nothing: lines are written at once or dropped."""

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)


def _write(fd: int, data: bytes) -> int:
    """Write without waiting; return the number of bytes written."""
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
    """Open a terminal or pipe again, non-blocking for this descriptor only; negative if that is impossible."""
    mode = os.fstat(fd).st_mode
    if not stat.S_ISCHR(mode) and not stat.S_ISFIFO(mode):
        return -1
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1


def _write_pieces(fd: int, data: bytes) -> int:
    """Write in pieces small enough to fit as soon as poll reports room."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    done = 0
    while done < len(data) and poll.poll(0):
        try:
            done += os.write(fd, data[done : done + _PIPE_BUF])
        except OSError:
            break
    return done


# -- memory


class LogLine(NamedTuple):
    """A log line: its Unix time, its level (of logging), its event, text and remedy."""

    when: float
    level: int
    event: str
    text: str
    remedy: str


class RecentLines(logging.Handler):
    """Keeps the last lines in memory, for the status page; iterates from the latest to the oldest."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[LogLine] = deque(maxlen=RECENT)

    def emit(self, record: logging.LogRecord) -> None:
        event, remedy = getattr(record, "event", ""), getattr(record, "remedy", "")
        self._lines.append(LogLine(record.created, record.levelno, event, _short(record.getMessage()), _short(remedy)))

    def __iter__(self) -> Iterator[LogLine]:
        return reversed(self._lines)

    def close(self) -> None:
        logging.getLogger("bccnd").removeHandler(self)
        super().close()


def _short(text: str) -> str:
    return printable(text if len(text) <= MAX_RECENT else text[:MAX_RECENT] + "...")
