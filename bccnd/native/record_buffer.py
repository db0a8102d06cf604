"""Collects short entries and returns them as one record.

A record has the size of all that follows the size (4 bytes), its kind (1), a serial number (8), the time in seconds (8,
a double), and the entries. An entry is a size (1 byte, up to LONGEST) and bytes, or a kind (1 byte, above LONGEST), a
size (2) and bytes. Numbers are in machine byte order. The compiled twin allocates its buffer once.
"""

from __future__ import annotations

import struct

#: most bytes of an entry without a kind; larger values are kinds
LONGEST = 239
#: most bytes of an entry with a kind
LARGEST = 65535

_HEAD = struct.Struct("=IBQd")
_SIZE = struct.Struct("=H")


class RecordBuffer:
    """Entries since the last `take`; ``used`` is their size in bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.used = 0

    def add(self, raw: bytes, start: int, end: int) -> bool:
        """Add ``raw[start:end]``; False, without adding, if that is empty, too long or not in ``raw``."""
        if not 0 <= start < end <= len(raw) or end - start > LONGEST:
            return False
        self._buffer.append(end - start)
        self._buffer += raw[start:end]
        self.used = len(self._buffer)
        return True

    def put(self, kind: int, body: bytes) -> None:
        """Add an entry with a kind. Raises ValueError for an invalid kind or size."""
        if not LONGEST < kind <= 255 or len(body) > LARGEST:
            raise ValueError("invalid kind or size of an entry")
        self._buffer.append(kind)
        self._buffer += _SIZE.pack(len(body)) + body
        self.used = len(self._buffer)

    def take(self, kind: int, serial: int, now: float) -> bytes:
        """Remove all entries and return them as one record."""
        taken = _HEAD.pack(_HEAD.size - 4 + self.used, kind, serial, now) + self._buffer
        self._buffer.clear()
        self.used = 0
        return taken
