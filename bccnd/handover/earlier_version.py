"""Reads what a daemon of version 1.0 has left of its sources: logs of changes, which this version keeps no more.

A file begins with MAGIC and a version (4 bytes). Each record has the size of all that follows the size (4 bytes), its
kind (1: DIRECT, or LINKED for input from a link), the serial number of the input (8; 0 for none), the time (8,
monotonic), and entries. A record without entries says that all that was missing for too long was counted as lost. An
entry is the ``src:seq`` of a datagram behind its size (1 byte, 1 to 239); or a kind (1 byte, from 240 on), a size (2)
and:

- HEARTBEAT: the src that sent one
- REMOVED: the src of a tracker that was removed
- STATE: 1 byte, `ALIVE` or `SILENT`, and the src that changed to it without a heartbeat
- DEATH: when the source was last heard, its last heartbeat, the interval before that (8 each), and the src
- ANONYMOUS: when an anonymous datagram was accepted (8), and its digest (16)
- IDENTITY: a local identity: expiry (8; infinite while in use), first seq and next seq (8 each), and the src
- TRACKER: a whole tracker: first, last, heard, rank, beat, gap, interval, epoch, state, the sizes of src and of absent;
  then src, absent and missing, the latter two as little-endian integers

Numbers are in machine byte order, times are seconds as doubles. Unknown kinds are skipped by size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.dedup_rules import DedupRules
from bccnd.core.tracking.liveness import Death, HeartbeatRules, Liveness
from bccnd.core.tracking.record_table import RecordTable
from bccnd.core.tracking.source_table import ALIVE, SILENT, UNWATCHED
from bccnd.core.wire.bccn1 import MAX_SEQ, UNKNOWN_SRC, check_src
from bccnd.errors import BadDatagram
from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.slots import SlotMemory

#: version 1.0 called these logs annals
MAGIC: Final = b"bccnd annals"
_HEADER: Final = MAGIC + struct.pack("=I", 1)
DIRECT: Final = 1
LINKED: Final = 2

HEARTBEAT: Final = 240
REMOVED: Final = 241
STATE: Final = 242
DEATH: Final = 243
ANONYMOUS: Final = 244
IDENTITY: Final = 245
TRACKER: Final = 246

#: seconds by which a record may be in the future: clocks are not read at the same moment
AHEAD: Final = 1.0

_RECORD: Final = struct.Struct("=IBQd")
_ENTRY: Final = struct.Struct("=BH")
_DEATH: Final = struct.Struct("=ddd")
_TIME: Final = struct.Struct("=d")
_IDENTITY: Final = struct.Struct("=dQQ")
_TRACKER: Final = struct.Struct("=QQdddddiBBH")


class _Damaged(Exception):
    """Bytes that no writer can have produced."""


def convert(
    files: Iterable[bytes], memory: SlotMemory, rules: DedupRules, watching: HeartbeatRules, now: float, *, skip: int
) -> list[str]:
    """Apply logs, the oldest first, to new memory, and return what was not understood.

    The record of input ``skip`` is left out, since that input is processed again. Nothing is counted.
    """
    reader = _Reader(memory, rules, watching, now, skip)
    problems = []
    for data in files:
        try:
            reader.read(data)
        except (_Damaged, BadDatagram, struct.error, ValueError, OverflowError) as error:
            problems.append(f"a log of sources: damaged ({error}); the rest is ignored")
    reader.finish()
    memory.clear_counters()
    return problems


class _Reader:
    """Applies files to trackers that only fill the memory."""

    def __init__(self, memory: SlotMemory, rules: DedupRules, watching: HeartbeatRules, now: float, skip: int) -> None:
        self._memory = memory
        self._mask = (1 << rules.sanity) - 2
        self._sources = TrackerTable(rules, memory)
        self._liveness = Liveness(self._sources, watching, 0.0)
        self._anonymous = RecordTable(memory, layout.ANONYMOUS, "=d")
        self._now = now
        self._skip = skip
        #: local identities: expiry, first seq and next seq
        self._own: dict[bytes, tuple[float, int, int]] = {}

    def read(self, data: bytes) -> None:
        at = len(_HEADER)
        if not data.startswith(_HEADER) and not _HEADER.startswith(data):
            raise _Damaged("not a log of this kind")
        while at + 4 <= len(data):
            (size,) = struct.unpack_from("=I", data, at)
            end = at + 4 + size
            if end > len(data):  # the writer was killed meanwhile
                break
            self._apply_record(data, at, end)
            at = end

    def finish(self) -> None:
        for src, (until, first, following) in self._own.items():
            own = self._sources.claim(src)
            own.first, own.next = first, following
            self._sources.local.release(src, until)

    def _apply_record(self, data: bytes, start: int, end: int) -> None:
        _, kind, serial, when = _RECORD.unpack_from(data, start)
        at = start + _RECORD.size
        if not 0 <= when <= self._now + AHEAD or at > end:
            raise _Damaged("an impossible record")
        if kind not in (DIRECT, LINKED) or (serial and serial == self._skip):
            return
        if at == end:
            while self._sources.sweep(when):
                pass
        while at < end:
            kind_or_size = data[at]
            if kind_or_size < HEARTBEAT:
                at, size = at + 1, kind_or_size
            else:
                _, size = _ENTRY.unpack_from(data, at)
                at += _ENTRY.size
            if at + size > end:
                raise _Damaged("an entry is longer than the record")
            body = data[at : at + size]
            if kind_or_size < HEARTBEAT:
                self._apply_datagram(body, when, kind == LINKED)
            else:
                self._apply_entry(kind_or_size, body, when)
            at += size

    def _apply_datagram(self, text: bytes, when: float, from_link: bool) -> None:
        src, _, digits = text.partition(b":")
        if not digits.isdigit() or (seq := int(digits)) > MAX_SEQ:
            raise _Damaged("an impossible seq")
        number = self._sources.find(src, 0, len(src))
        if number >= 0:
            self._sources.follow(number, seq, when, from_link)
        elif self._may_track(src):
            self._sources.start(src, seq, when)

    def _may_track(self, src: bytes) -> bool:
        """Whether a tracked src may still be tracked: it is not a local identity now."""
        check_src(src)
        if src == UNKNOWN_SRC:
            raise _Damaged("a tracker of the anonymous src")
        # A local identity is tracked only after it has expired.
        self._own.pop(src, None)
        return self._sources.local.get(src) is None

    def _apply_entry(self, kind: int, body: bytes, when: float) -> None:
        if kind == HEARTBEAT:
            self._liveness.on_heartbeat(body, when)
        elif kind == REMOVED:
            self._sources.drop(body)
        elif kind == STATE:
            source = self._sources.get(body[1:])
            if body[0] not in (ALIVE, SILENT):
                raise _Damaged("an unknown state")
            if source is not None and source.state != UNWATCHED:
                source.state = body[0]
        elif kind == DEATH:
            heard, beat, gap = (self._checked(time) for time in _DEATH.unpack_from(body))
            check_src(body[_DEATH.size :])
            self._liveness.dead.put(body[_DEATH.size :], Death(heard, beat, gap))
        elif kind == ANONYMOUS:
            self._anonymous.put(body[_TIME.size :], self._checked(*_TIME.unpack_from(body)))
        elif kind == IDENTITY:
            until, first, following = _IDENTITY.unpack_from(body)
            src = body[_IDENTITY.size :]
            check_src(src)
            self._own[src] = until, first, following
        elif kind == TRACKER:
            self._apply_tracker(body)

    def _apply_tracker(self, body: bytes) -> None:
        first, last, heard, rank, beat, gap, interval, epoch, state, size, bits = _TRACKER.unpack_from(body)
        src, end = body[_TRACKER.size : _TRACKER.size + size], _TRACKER.size + size + bits
        if first > last or epoch < 1 or end > len(body) or state not in (UNWATCHED, ALIVE, SILENT):
            raise _Damaged("an impossible tracker")
        for time in (heard, beat, gap, interval):
            self._checked(time)
        if self._may_track(src):
            self._sources.drop(src)
            absent = int.from_bytes(body[end - bits : end], "little") & self._mask
            number = self._sources.start(src, last, heard)
            if number >= 0:
                source = self._memory.source(number)
                source.first, source.rank, source.epoch = first, rank, epoch
                source.beat, source.gap, source.interval, source.state = beat, gap, interval, state
                self._memory.set_window(number, absent, int.from_bytes(body[end:], "little") & absent)

    def _checked(self, time: float) -> float:
        if not 0 <= time <= self._now + AHEAD:
            raise _Damaged("an impossible time")
        return time
