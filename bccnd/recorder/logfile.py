"""The log file: records with checksums, appended.

Invariant: a record is read as it was written, or not at all, and none before a damaged one is lost. A torn tail, which
a process that dies while writing leaves, and zeros, which a power cut may leave, end the file. All else is damage.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal

#: before each record: its length, its checksum, and the checksum of these two, so that a wrong length is no torn tail
_HEAD: Final = struct.Struct("<III")
#: bytes of a record at most: four times the largest packet of the bus
MAX_RECORD: Final = 1 << 21

#: kinds of records: what a log is of, which comes first; a packet of the tap; rows; a sign of life
HEAD: Final = b"H"
PACKET: Final = b"P"
ROWS: Final = b"R"
ALIVE: Final = b"A"

End = Literal["clean", "torn", "damaged"]


def frame(kind: bytes, content: bytes) -> list[bytes]:
    """A record in pieces; ``kind`` is one byte."""
    counted = struct.pack("<II", len(content) + 1, zlib.crc32(content, zlib.crc32(kind)))
    return [counted + struct.pack("<I", zlib.crc32(counted)) + kind, content]


class LogWriter:
    """A log that is being written. Raises OSError, and then ends with the record before."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def fileno(self) -> int:
        return self._fd

    def append(self, kind: bytes, content: bytes) -> None:
        """Add a record, with one write."""
        pieces = frame(kind, content)
        wanted = len(pieces[0]) + len(content)
        try:
            written = os.writev(self._fd, pieces)
            if written != wanted:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):  # what cannot be taken back is a torn tail
                os.ftruncate(self._fd, self.size)
            raise
        self.size += wanted

    def has_room(self, size: int) -> None:
        """See whether so many bytes could be added. Raises OSError."""
        try:
            os.posix_fallocate(self._fd, self.size, size)
        finally:
            os.ftruncate(self._fd, self.size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class LogReader:
    """Iterates over the records of a log. Then ``end`` is how it ends, and ``good`` how many of its bytes are in
    order."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.good = 0
        self.end: End = "clean"

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield kind and content of each record."""
        try:
            while head := self._file.read(_HEAD.size):
                if len(head) < _HEAD.size:
                    self.end = "torn"
                    return
                size, expected, own = _HEAD.unpack(head)
                if zlib.crc32(head[:8]) != own or not 1 <= size <= MAX_RECORD:
                    self.end = self._judge_tail(head)
                    return
                content = self._file.read(size)
                if len(content) < size:
                    self.end = "torn"
                    return
                if zlib.crc32(content) != expected:
                    self.end = self._judge_tail(content)
                    return
                self.good += len(head) + size
                yield content[:1], content[1:]
        except OSError:  # the disk does not give back the rest
            self.end = "damaged"

    def _judge_tail(self, data: bytes) -> End:
        """Return "torn" if nothing but zeros comes from here on. Raises OSError."""
        while data and not data.strip(b"\0"):
            data = self._file.read(MAX_RECORD)
        return "damaged" if data else "torn"
