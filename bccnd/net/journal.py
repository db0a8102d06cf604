"""The way into the systemd journal: one datagram for each entry, with all its fields.

Law: nothing here waits for the journal. What it does not take at once is not sent, and whoever asked for it is told.
Source: systemd, "Native Journal Protocol" (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
import termios
import time
from collections.abc import Iterable, Mapping
from typing import Final

#: what a field may hold; text goes out as UTF-8, bytes as they are
Value = str | bytes | int | float

#: where the journal listens, on every host that has one
SOCKET: Final = "/run/systemd/journal/socket"
#: a value that may stand behind a `=`, up to the end of its line
_PLAIN: Final = re.compile(rb"[^\x00-\x1f\x7f]*")
#: what a memory file must promise before the journal reads it: that nobody can change it any more
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
#: the entry is more than the socket takes in one datagram
_TOO_LARGE: Final = (errno.EMSGSIZE, errno.ENOBUFS)
#: seconds between two looks whether the journal has read
_LOOK: Final = 0.005
#: seconds that it takes the journal, once it has read an entry, to look at who sent it
_GRACE: Final = 0.05


def is_journal(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether a descriptor is the one by which the service manager has connected this process to the journal."""
    try:
        info = os.fstat(fd)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{info.st_dev}:{info.st_ino}"


def encode(fields: Iterable[tuple[str, Value]]) -> bytes:
    """An entry as the journal reads it. A value may be anything: one that is not plain text in one line goes with its
    length before it, so that it can neither end early nor bring in fields of its own."""
    out = bytearray()
    for name, value in fields:
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
        if _PLAIN.fullmatch(data):
            out += b"%b=%b\n" % (name.encode("ascii"), data)
        else:
            out += b"%b\n%b%b\n" % (name.encode("ascii"), struct.pack("<Q", len(data)), data)
    return bytes(out)


class Journal:
    """A journal that listens at ``path``. Raises OSError when there is none."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
            probe.connect(path)
        # Not connected: a journal that is restarted may make its socket anew.
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def send(self, entry: bytes) -> bool:
        """Hand an entry over; False when it does not go now, and then it is nowhere."""
        try:
            self._sock.sendto(entry, self._path)
        except OSError as error:
            return error.errno in _TOO_LARGE and self._send_as_file(entry)
        return True

    def _send_as_file(self, entry: bytes) -> bool:
        """Hand over a descriptor of a file in memory that holds the entry."""
        try:
            fd = os.memfd_create("bccnd-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                with open(fd, "wb", closefd=False) as file:
                    file.write(entry)
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", fd))]
                self._sock.sendmsg([], rights, 0, self._path)
            finally:
                os.close(fd)
        except OSError:
            return False
        return True

    def settle(self, patience: float) -> None:
        """Wait until the journal has read what was sent, no longer than ``patience`` seconds.

        For who is about to end: an entry whose sender is gone cannot be told to belong to its service any more.
        """
        deadline = time.monotonic() + patience
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                (unread,) = struct.unpack("=i", fcntl.ioctl(self._sock, termios.TIOCOUTQ, b"\0" * 4))
                if not unread:
                    time.sleep(_GRACE)
                    break
                time.sleep(_LOOK)

    def close(self) -> None:
        self._sock.close()
