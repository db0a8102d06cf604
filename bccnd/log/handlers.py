"""Log handlers: systemd's journal, a terminal through rich, files and pipes, a ring of recent lines in memory.

Invariant: no handler waits for its reader. A line that cannot be written at once is dropped and counted; the next one
that can be written is preceded by the count.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import select
import socket
import stat
import sys
import termios
import time
from collections import deque
from collections.abc import Iterator
from typing import IO, Final, NamedTuple, cast

from bccnd.log.events import EVENTS

#: what a field may hold; text goes out as UTF-8, bytes as they are
Value = str | bytes | int | float

#: the journal's socket
SOCKET: Final = "/run/systemd/journal/socket"
#: characters or bytes of each value of an entry that exceeds a datagram
MAX_VALUE: Final = 4096
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

#: lines of this process that could not be written, or only in part
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
    """Sends each record to the journal as an entry with its fields. Raises OSError.

    An entry is a datagram of the journal's native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL). systemd-python
    would hold the interpreter's lock while a stalled journal blocks it.
    """

    def __init__(self, program: str) -> None:
        os.stat(SOCKET)
        super().__init__()
        self.formatter = _Formatter()
        # Not connected: each entry goes to the socket that has the path now, also after a restart of the journal.
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._program = program
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost and self._send(_lines_lost_record(self._lost)):
            self._lost = 0
        if self._lost or not self._send(record):
            self._lost += 1
            lines_lost["lines_lost"] += 1

    def _send(self, record: logging.LogRecord) -> bool:
        """Send a record, cut if it exceeds a datagram; False if the journal does not accept it now."""
        for longest in (sys.maxsize, MAX_VALUE):
            try:
                self._sock.sendto(self._entry(record, longest), SOCKET)
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    break
            else:
                lines_lost["lines_lost"] += longest == MAX_VALUE
                return True
        return False

    def _entry(self, record: logging.LogRecord, longest: int) -> bytes:
        fields: dict[str, Value] = {"MESSAGE": self.format(record), "PRIORITY": _PRIORITIES.get(record.levelno, 6)}
        fields["SYSLOG_IDENTIFIER"] = self._program
        event: str = getattr(record, "event", "")
        if event:
            fields |= {"MESSAGE_ID": EVENTS[event].id, "BCCND_EVENT": event}
            if remedy := getattr(record, "remedy", ""):
                fields["BCCND_REMEDY"] = remedy
            fields |= {f"BCCND_{name.upper()}": value for name, value in getattr(record, "fields", {}).items()}
        return b"".join(_field(name.encode("ascii"), value, longest) for name, value in fields.items())

    def wait_until_read(self, timeout: float) -> None:
        """Wait until the journal has read everything, at most ``timeout`` seconds.

        The journal cannot attribute an entry to a service if its process has exited.
        """
        deadline = time.monotonic() + timeout
        while any(fcntl.ioctl(self._sock, termios.TIOCOUTQ, bytes(4))) and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)
        time.sleep(_LOOKUP_TIME)

    def close(self) -> None:
        self._sock.close()
        super().close()


def _field(name: bytes, value: Value, longest: int) -> bytes:
    """Encode a field, with its length if it has several lines: no value ends early or adds a field."""
    if isinstance(value, bytes):
        data = value[:longest]
    else:
        data = _cut(str(value), longest).encode("utf-8", "backslashreplace")
    if b"\n" in data:
        return b"%b\n%b%b\n" % (name, len(data).to_bytes(8, "little"), data)
    return b"%b=%b\n" % (name, data)


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
    return printable(_cut(text, MAX_RECENT))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "..."
