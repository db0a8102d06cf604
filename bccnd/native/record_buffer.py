"""Short notes, gathered one behind the other and taken as one record.

Law: what is taken is what was put in, in its order, behind a head; nothing outside of the bytes is ever looked at.
Numbers stand as this machine writes them. Compiled, the room is made once, and a note takes a few nanoseconds.

A record: the size of all that follows the size (4 bytes), its kind (1), a serial number (8), the time in seconds (8, as
a floating-point number), the notes. A note: its size (1 byte, up to LONGEST) and the bytes; or, for a note that says
what it is, its kind (1 byte, above LONGEST), its size (2) and the bytes.
"""

from __future__ import annotations

import struct

#: bytes of a note of no kind; what is above says what kind a note is of
LONGEST = 239
#: bytes of any note
LARGEST = 65535

_HEAD = struct.Struct("=IBQd")
_SIZE = struct.Struct("=H")


class RecordBuffer:
    """What was noted since it was taken last. ``used`` is how many bytes that are."""

    def __init__(self) -> None:
        self._room = bytearray()
        self.used = 0

    def add(self, raw: bytes, start: int, end: int) -> bool:
        """Note ``raw[start:end]``. False if that is nothing, too long, or not in ``raw``: then nothing is noted."""
        if not 0 <= start < end <= len(raw) or end - start > LONGEST:
            return False
        self._room.append(end - start)
        self._room += raw[start:end]
        self.used = len(self._room)
        return True

    def put(self, kind: int, what: bytes) -> None:
        """Note something of a kind. Raises ValueError if it is too long, or not of a kind that there may be."""
        if not LONGEST < kind <= 255 or len(what) > LARGEST:
            raise ValueError("no such kind of note, or too long for one")
        self._room.append(kind)
        self._room += _SIZE.pack(len(what)) + what
        self.used = len(self._room)

    def take(self, kind: int, serial: int, now: float) -> bytes:
        """All of it as one record; there are no notes then."""
        taken = _HEAD.pack(_HEAD.size - 4 + self.used, kind, serial, now) + self._room
        self._room.clear()
        self.used = 0
        return taken
