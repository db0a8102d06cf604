"""Write-ahead log of tracker changes, replayed by the next daemon (`tracker_replay`).

Invariant: records are only appended, in the order of time, so that a file that ends anywhere gives the state at that
moment.

A file begins with MAGIC and VERSION (4 bytes). Each record has the size of all that follows the size (4 bytes), its
kind (1: DIRECT, or LINKED for input from a link), the serial number of the input (8; 0 for none), the time (8,
monotonic), and entries. A record without entries says that all that was missing for too long at its time was counted as
lost. An entry is the ``src:seq`` of a datagram that changed a tracker, as on the wire, behind its size (1 byte, 1 to
239); or a kind (1 byte, from 240 on), a size (2) and:

- HEARTBEAT: the src that sent one
- REMOVED: the src of a tracker that was removed
- STATE: 1 byte, `liveness.ALIVE` or `liveness.SILENT`, and the src that changed to it without a heartbeat
- DEATH: when the source was last heard, its last heartbeat, the interval before that (8 each), and the src
- ANONYMOUS: when an anonymous datagram was accepted (8), and its digest (16)
- IDENTITY: a local identity: expiry (8; infinite while in use), first seq and next seq (8 each), and the src
- TRACKER: a whole tracker, which replaces the earlier one: see `tracker_snapshot`
- COMPLETE: empty; from here on this file needs none before it

Numbers are in machine byte order, times are seconds as doubles. Each file begins with a snapshot that is written in
steps between other records; until it is complete, the file before is needed too. Unknown kinds are skipped by size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from bccnd.core.bccn1 import MAX_SEQ
from bccnd.native.record_buffer import RecordBuffer

MAGIC: Final = b"bccnd annals"
VERSION: Final = 1
FILE_HEADER: Final = MAGIC + struct.pack("=I", VERSION)

DIRECT: Final = 1
LINKED: Final = 2

HEARTBEAT: Final = 240
REMOVED: Final = 241
STATE: Final = 242
DEATH: Final = 243
ANONYMOUS: Final = 244
IDENTITY: Final = 245
TRACKER: Final = 246
COMPLETE: Final = 247

#: a file is replaced when it is so many times as large as its snapshot, and at least SMALLEST bytes
GROWTH: Final = 4
SMALLEST: Final = 1 << 20
#: entries per call of `step`, and bytes that end it early: a call lasts a fraction of a millisecond
STEP: Final = 128
STEP_BYTES: Final = 1 << 16

RECORD_HEAD: Final = struct.Struct("=IBQd")
ENTRY_HEAD: Final = struct.Struct("=BH")
DEATH_TIMES: Final = struct.Struct("=ddd")
TIME: Final = struct.Struct("=d")
SEQ_RANGE: Final = struct.Struct("=dQQ")

Entry = tuple[int, bytes]
Clock = Callable[[], float]


class TrackerLog:
    """Appends records to a file through ``write``, which returns the number of bytes written, as os.write does.

    ``serial`` is the number of the input in progress, set by the caller and never repeated. ``failed`` is why no more
    can be written, or empty; only `rotate` helps then. ``snapshot`` takes a clock and iterates over entries for the
    whole state, with None where there is nothing to write.
    """

    def __init__(
        self,
        write: Callable[[bytes], int],
        snapshot: Callable[[Clock], Iterator[Entry | None]],
        now: float,
    ) -> None:
        self.serial = 0
        self.entries = RecordBuffer()
        self.failed = ""
        self._snapshot = snapshot
        self._now = now
        self.rotate(write)

    def rotate(self, write: Callable[[bytes], int]) -> None:
        """Continue in another file, which is empty."""
        self._write = write
        self.failed = ""
        #: bytes in the file
        self.size = 0
        #: the file needs none before it
        self.complete = False
        self._snapshot_size = 0
        self._rest: Iterator[Entry | None] | None = self._snapshot(self.latest_time)
        self._append(FILE_HEADER)

    def latest_time(self) -> float:
        return self._now

    @property
    def due(self) -> bool:
        """Whether the file should be replaced."""
        return self.complete and self.size > max(SMALLEST, GROWTH * self._snapshot_size)

    def log_datagram(self, src: bytes, seq: int) -> None:
        """Log a datagram that changed a tracker and whose ``src:seq`` is too long for `entries` (leading zeros)."""
        text = b"%b:%d" % (src, seq)
        self.entries.add(text, 0, len(text))

    def log_heartbeat(self, src: bytes) -> None:
        self.entries.put(HEARTBEAT, src)

    def log_removal(self, src: bytes) -> None:
        self.entries.put(REMOVED, src)

    def log_state(self, src: bytes, state: int) -> None:
        """Log a change of state that was not caused by a heartbeat."""
        self.entries.put(STATE, bytes((state,)) + src)

    def log_death(self, src: bytes, heard: float, beat: float, gap: float) -> None:
        self._put(death_entry(src, heard, beat, gap))

    def log_anonymous(self, key: bytes, when: float) -> None:
        self._put(anonymous_entry(key, when))

    def log_identity(self, src: bytes, until: float, first: int, following: int) -> None:
        """Log that an identity was claimed or released, at once and with no serial number: its broadcasts must never
        be taken for another host's, and the record holds although the input may be processed again."""
        self._put(identity_entry(src, until, first, following))
        self._flush(DIRECT, 0, self._now)

    def log_losses(self, now: float) -> None:
        """Log that what was missing for too long was counted as lost. No input may be in progress."""
        if self.entries.used:
            self._flush(DIRECT, 0, self._now)
        self._flush(DIRECT, 0, now)

    def _put(self, entry: Entry) -> None:
        kind, body = entry
        self.entries.put(kind, body)

    def flush(self, now: float, from_link: bool = False) -> None:
        """Write the entries of one input."""
        self._now = now
        if self.entries.used:
            self._flush(LINKED if from_link else DIRECT, self.serial, now)

    def _flush(self, kind: int, serial: int, now: float) -> None:
        self._append(self.entries.take(kind, serial, now))

    def _append(self, record: bytes) -> None:
        if self.failed:
            return
        try:
            written = self._write(record)
        except OSError as error:
            self.failed = str(error)
            return
        self.size += written
        if written != len(record):
            self.failed = f"there was room for {written} of {len(record)} bytes"

    def step(self, now: float) -> bool:
        """Write pending entries and continue the snapshot; True if more can be done now. Cheap; call it often, but
        never while an input is in progress."""
        self._now = now
        if self.entries.used:
            self._flush(DIRECT, 0, now)
        if self._rest is None or self.failed:
            return False
        for _ in range(STEP):
            entry = next(self._rest, _END)
            if entry is _END:
                self._rest = None
                self.entries.put(COMPLETE, b"")
                break
            if entry is not None:
                self._put(entry)
            if self.entries.used > STEP_BYTES:
                break
        if self.entries.used:
            before = self.size
            self._flush(DIRECT, 0, now)
            self._snapshot_size += self.size - before
        self.complete = self._rest is None and not self.failed
        return self._rest is not None


#: marks the end of an iterator
_END: Final = (0, b"")


def death_entry(src: bytes, heard: float, beat: float, gap: float) -> Entry:
    return DEATH, DEATH_TIMES.pack(heard, beat, gap) + src


def anonymous_entry(key: bytes, when: float) -> Entry:
    return ANONYMOUS, TIME.pack(when) + key


def identity_entry(src: bytes, until: float, first: int, following: int) -> Entry:
    return IDENTITY, SEQ_RANGE.pack(until, first, min(following, MAX_SEQ)) + src
