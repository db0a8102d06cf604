"""What the trackers live through, written down as it happens, and lived through again by who comes after us.

Law: what is written is never changed, only added to, and stands in the order of time; so whoever reads it, up to
wherever it ends, knows what the trackers knew at that moment. Nothing in it can harm the reader: what he does not
understand he leaves out, and says so.

A file begins with MAGIC and VERSION (4 bytes). What follows are records: the size of all that follows the size
(4 bytes), the kind of the record (1; what a link has brought is 2), the serial number of the input that was worked on,
0 for none (8), the time (8, monotonic), and notes. A note is the ``src:seq`` of a datagram that changed a tracker, as
it stood in the datagram, behind its size (1 byte, 1 to 239); or its kind (1 byte, from 240 on), its size (2) and:

- BEAT: a src that sent a heartbeat
- GONE: a src that was forgotten
- STATE: 1 byte, ALIVE or SILENT, and the src that it became without a heartbeat
- DEAD: when it was heard, when it sent its last heartbeat, how long after the one before (8 each), and the src
- NAMELESS: when it was heard (8), and the digest of what was sent by who does not know its name (16)
- OWN: an identity of ours: until when (8; without end while it is claimed), the first seq and the one behind the last
  that we gave (8 each), and the src
- SOURCE: a whole tracker, in place of what was known of it: see `_pack`
- COMPLETE: nothing; from here on this file needs none before it

Numbers stand as this machine writes them, times are seconds as floating-point numbers. Each file begins with a
snapshot of everything, written in steps between what happens meanwhile; until it is complete, the file before is
needed too. A kind of record or note that is not known is passed over by its size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.bccn1 import MAX_SEQ, UNKNOWN_SRC, check_src, read_seq
from bccnd.core.dedup import RANK_SECONDS, LocalIdentity, TrackerTable
from bccnd.core.egress import LINGER
from bccnd.core.liveness import ALIVE, SILENT, UNWATCHED, Death, Liveness
from bccnd.core.lru import Source
from bccnd.errors import BadDatagram
from bccnd.native import scan
from bccnd.native.record_buffer import RecordBuffer

MAGIC: Final = b"bccnd annals"
VERSION: Final = 1

_RECORD: Final = 1
#: a record of what a link has brought, which is judged with more caution
_LINKED: Final = 2

_BEAT: Final = 240
_GONE: Final = 241
_STATE: Final = 242
_DEAD: Final = 243
_NAMELESS: Final = 244
_OWN: Final = 245
_SOURCE: Final = 246
_COMPLETE: Final = 247

#: a file is worth replacing when it is so many times as large as its snapshot, and not before it has a size at all
GROWTH: Final = 4
SMALLEST: Final = 1 << 20
#: things written per call of `step`, and bytes from which on it is enough, so that no call lasts longer than a fraction
#: of a millisecond
STEP: Final = 128
STEP_BYTES: Final = 1 << 16
#: a record that claims to be longer is none: the longest that are written have a tenth of that
MAX_RECORD: Final = 1 << 24
#: seconds by which a record may be ahead of us: clocks do not go back, but are not read at the same moment
AHEAD: Final = 1.0
#: seqs that may have been given under an identity since the last one was written down. Seqs follow the wall clock, but
#: where that was set back they are ahead of it, and to give one twice would be to lose a message
SPARE: Final = 1 << 20

_ENDLESS: Final = float("inf")
_COLON: Final = ord(":")
_HEADER: Final = MAGIC + struct.pack("=I", VERSION)
_SIZE: Final = struct.Struct("=I")
_HEAD: Final = struct.Struct("=IBQd")
_NOTE: Final = struct.Struct("=BH")
_TIMES: Final = struct.Struct("=ddd")
_WHEN: Final = struct.Struct("=d")
_RANGE: Final = struct.Struct("=dQQ")
_TRACKER: Final = struct.Struct("=QQdddddiBBH")


class TrackerLog:
    """Writes the annals of trackers, who tell it by themselves what happens to them.

    ``write`` gets bytes and returns how many of them it has written, as os.write does. ``serial`` is for the caller to
    set before each input; no number may come twice. ``failed`` is why no more can be written, if that is so: then only
    another file helps.
    """

    def __init__(
        self,
        sources: TrackerTable,
        anonymous: AnonymousDedup,
        liveness: Liveness,
        write: Callable[[bytes], int],
        now: float,
    ) -> None:
        """Begin a file with all that the trackers know, and go on with what happens to them."""
        self.serial = 0
        self._sources = sources
        self._anonymous = anonymous
        self._liveness = liveness
        self.notes = RecordBuffer()
        self._now = now
        self.failed = ""
        self.rotate(write)
        sources.tracker_log = anonymous.tracker_log = liveness.tracker_log = self

    def rotate(self, write: Callable[[bytes], int]) -> None:
        """From now on everything goes into another file, which is empty."""
        self._write = write
        self.failed = ""
        #: bytes in the file
        self.size = 0
        #: the file needs none before it
        self.complete = False
        self._snapshot = 0
        self._walk: Iterator[None] | None = self._walk_all()
        self._put_out(_HEADER)

    @property
    def due(self) -> bool:
        """Whether it is time for another file."""
        return self.complete and self.size > max(SMALLEST, GROWTH * self._snapshot)

    # -- what happens

    def datagram(self, src: bytes, seq: int) -> None:
        """A datagram has changed a tracker. Whoever feeds them notes ``src:seq`` as it stands in the datagram, but for
        those with more leading zeros than a note can hold."""
        plain = b"%b:%d" % (src, seq)
        self.notes.add(plain, 0, len(plain))

    def beat(self, src: bytes) -> None:
        """That was a heartbeat."""
        self.notes.put(_BEAT, src)

    def gone(self, src: bytes) -> None:
        """A tracker was given up."""
        self.notes.put(_GONE, src)

    def state(self, src: bytes, state: int) -> None:
        """Who is watched fell silent, or came back without a heartbeat."""
        self.notes.put(_STATE, bytes((state,)) + src)

    def dead(self, src: bytes, death: Death) -> None:
        """Who was watched died."""
        self.notes.put(_DEAD, _TIMES.pack(*death) + src)

    def anonymous(self, key: bytes, when: float) -> None:
        """Something was accepted from who does not know its own name."""
        self.notes.put(_NAMELESS, _WHEN.pack(when) + key)

    def own(self, src: bytes, own: LocalIdentity) -> None:
        """An identity was claimed or released. This is written at once: what is sent under it must never be taken for
        somebody else's. And it stays as it is if the input in which it happens is worked on again."""
        self._note_own(src, own)
        self._flush(0, self._now)

    def flush(self, now: float) -> None:
        """An input was worked on: write down what was noted of it, if anything was."""
        self._now = now
        if self.notes.used:
            self._flush(self.serial, now)

    def _flush(self, serial: int, now: float) -> None:
        self._put_out(self.notes.take(_LINKED if self._sources.from_link else _RECORD, serial, now))

    def _put_out(self, record: bytes) -> None:
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

    # -- the snapshot

    def step(self, now: float) -> bool:
        """Write down what time has done, and go on with the snapshot; True when there is more to be done now. Cheap;
        call it often, but never while an input is being worked on."""
        self._now = now
        if self.notes.used:
            self._flush(0, now)
        if self._walk is None or self.failed:
            return False
        for _ in range(STEP):
            if next(self._walk, _END) is _END:
                self._walk = None
                self.notes.put(_COMPLETE, b"")
                break
            if self.notes.used > STEP_BYTES:
                break
        if self.notes.used:
            before = self.size
            self._flush(0, now)
            self._snapshot += self.size - before
        self.complete = self._walk is None and not self.failed
        return self._walk is not None

    def _walk_all(self) -> Iterator[None]:
        """Note all that the trackers know, one thing at a time; what changes meanwhile is noted anyway."""
        sources, anonymous, liveness = self._sources, self._anonymous, self._liveness
        for src in sources.own_srcs():
            own = sources.own(src)
            if own is not None:
                self._note_own(src, own)
            yield
        for src in list(liveness.dead):
            death = liveness.dead.get(src)
            if death is not None:
                self.dead(src, death)
            yield
        for key in anonymous.remembered():
            when = anonymous.when(key)
            if when is not None and self._now - when <= anonymous.horizon:
                self.anonymous(key, when)
            yield
        for shard in range(sources.shards()):
            for source in sources.shard(shard):
                if sources.get(source.src) is source:
                    self.notes.put(_SOURCE, _pack(source))
                yield
            yield

    def _note_own(self, src: bytes, own: LocalIdentity) -> None:
        self.notes.put(_OWN, _RANGE.pack(own.until, own.first, min(own.next, MAX_SEQ)) + src)


#: what an iterator gives that has nothing any more
_END: Final = object()


def _pack(source: Source) -> bytes:
    """A tracker: first, last, heard, rank, beat, gap, interval, epoch, state, the sizes of src and of absent; then src,
    absent and missing, the lowest byte first."""
    absent = _bits(source.absent)
    return (
        _TRACKER.pack(
            source.first,
            source.last,
            source.heard,
            source.rank,
            source.beat,
            source.gap,
            source.interval,
            source.epoch,
            source.state,
            len(source.src),
            len(absent),
        )
        + source.src
        + absent
        + _bits(source.missing)
    )


def _bits(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "little") if number else b""


# -- reading


@dataclass(frozen=True)
class ReplayResult:
    """What was taken over: trackers, and records and datagrams that they were made of; whether the last file stands for
    itself; and what could not be understood, in words."""

    sources: int
    records: int
    datagrams: int
    complete: bool
    doubts: tuple[str, ...]


def replay(
    files: Iterable[bytes],
    sources: TrackerTable,
    anonymous: AnonymousDedup,
    liveness: Liveness,
    *,
    now: float,
    clock_us: int,
    skip_serial: int = 0,
) -> ReplayResult:
    """Live through the annals again, the older file first, with the rules in force. Nothing may be heard before, and
    whoever wants to go on writing begins right behind, before time does anything to the trackers.

    The record of the input ``skip_serial`` is left out, as that is to be worked on again. Nobody is told of anything,
    and nothing is counted that was counted before. Whom we watched is still watched, but silence counts only from
    ``now`` on, and what is missing has the horizon's time from then. Identities that were ours are so for a while
    longer, or for as long as they are claimed: by now or later. Of the seqs that we gave under those that were in use
    nobody has written down the last; it is taken to be below ``clock_us``, the wall clock in microseconds, or the last
    one that was written down, and SPARE more.
    """
    reader = _Reader(sources, anonymous, liveness, now, skip_serial)
    counted = sources.lost, sources.restarts, sources.jumps, sources.expired, sources.evicted
    for data in files:
        reader.read(data)
    reader.settle(clock_us)
    sources.lost, sources.restarts, sources.jumps, sources.expired, sources.evicted = counted
    return ReplayResult(len(sources), reader.records, reader.datagrams, reader.complete, tuple(reader.doubts))


class _Damaged(Exception):
    """Bytes that nobody can have written."""


class _Reader:
    """Reads files one after the other."""

    def __init__(
        self, sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness, now: float, skip_serial: int
    ) -> None:
        self.records = 0
        self.datagrams = 0
        self.complete = False
        self.doubts: list[str] = []
        self._sources = sources
        self._anonymous = anonymous
        self._liveness = liveness
        self._now = now
        self._skip = skip_serial
        self._files = 0
        #: when the last record was written
        self._latest = 0.0
        #: identities that were ours: until when, and the first seq and the one behind the last
        self._own: dict[bytes, tuple[float, int, int]] = {}

    def read(self, data: bytes) -> None:
        """Take over what a file says, as far as it can be understood."""
        self._files += 1
        self.complete = False
        if not data.startswith(_HEADER):
            if not _HEADER.startswith(data):  # it had not even been begun
                self.doubts.append(f"file {self._files}: not annals of version {VERSION}; nothing in it was taken over")
            return
        strange: dict[str, int] = {}
        at = len(_HEADER)
        try:
            while at + _SIZE.size <= len(data):
                (size,) = _SIZE.unpack_from(data, at)
                if size > MAX_RECORD or size < 1:
                    raise _Damaged(f"a record of {size} bytes")
                end = at + _SIZE.size + size
                if end > len(data):  # whoever wrote this was killed meanwhile
                    break
                if data[at + _SIZE.size] in (_RECORD, _LINKED):
                    self._sources.from_link = data[at + _SIZE.size] == _LINKED
                    self._record(data, at, end, strange)
                else:
                    _add(strange, f"records of kind {data[at + _SIZE.size]}")
                at = end
        except (_Damaged, BadDatagram, struct.error) as wrong:
            self.doubts.append(
                f"file {self._files}: damaged in the record at byte {at} ({wrong}); the rest of it was not taken over"
            )
        finally:
            self._sources.from_link = False
        for what, count in strange.items():
            self.doubts.append(f"file {self._files}: {count} {what} are not known to this version and were left out")

    def _record(self, data: bytes, start: int, end: int, strange: dict[str, int]) -> None:
        if end < start + _HEAD.size:
            raise _Damaged("it is too short")
        _, _, serial, when = _HEAD.unpack_from(data, start)
        if not 0 <= when <= self._now + AHEAD:
            raise _Damaged("it is of another time")
        if serial and serial == self._skip:
            return
        self._latest = when
        self._sources.pass_time(when)
        self.records += 1
        at = start + _HEAD.size
        while at < end:
            kind = data[at]
            if kind < _BEAT:
                at += 1
                size = kind
                if size == 0 or at + size > end:
                    raise _Damaged("a note goes beyond its end")
                self._datagram(data, at, at + size, when)
            else:
                if at + _NOTE.size > end:
                    raise _Damaged("a note goes beyond its end")
                _, size = _NOTE.unpack_from(data, at)
                at += _NOTE.size
                if at + size > end:
                    raise _Damaged("a note goes beyond its end")
                self._note(kind, data[at : at + size], when, strange)
            at += size

    def _datagram(self, data: bytes, start: int, end: int, when: float) -> None:
        colon = scan.find(data, _COLON, start)
        if not start < colon < end:
            raise _Damaged("a datagram without a number")
        self.datagrams += 1
        found = scan.parse_uint(data, colon + 1, end)
        source = self._sources.get_slice(data, start, colon)
        if source is not None and found >= 0:
            self._sources.follow(source, found, when)
            return
        src, seq = data[start:colon], read_seq(data[colon + 1 : end])
        if source is not None:
            self._sources.follow(source, seq, when)
        elif self._may_track(src):
            self._sources.start(src, seq, when)

    def _may_track(self, src: bytes) -> bool:
        """Whether somebody who was tracked may still be: he is not by now one of our own."""
        check_src(src)
        if src == UNKNOWN_SRC:
            raise _Damaged("a tracker of nobody")
        # If he was our own once, his time was over.
        self._own.pop(src, None)
        return self._sources.own(src) is None

    def _note(self, kind: int, what: bytes, when: float, strange: dict[str, int]) -> None:
        if kind == _BEAT:
            self._liveness.restore_beat(what, when)
        elif kind == _GONE:
            self._sources.drop(what)
        elif kind == _STATE:
            if what[:1] not in (bytes((ALIVE,)), bytes((SILENT,))):
                raise _Damaged("an unknown state")
            self._liveness.restore_state(what[1:], what[0])
        elif kind == _DEAD:
            heard, beat, gap = _TIMES.unpack_from(what)
            self._check(heard)
            self._check(beat)
            self._check(gap)  # it has passed between two heartbeats
            check_src(what[_TIMES.size :])
            self._liveness.restore_death(what[_TIMES.size :], Death(heard, beat, gap))
        elif kind == _NAMELESS:
            (since,) = _WHEN.unpack_from(what)
            self._check(since)
            self._anonymous.restore(what[_WHEN.size :], since)
        elif kind == _OWN:
            until, first, beyond = _RANGE.unpack_from(what)
            src = what[_RANGE.size :]
            check_src(src)
            if not until >= 0:
                raise _Damaged("a time that is none")
            self._own[src] = until, first, beyond
        elif kind == _SOURCE:
            self._source(what, when)
        elif kind == _COMPLETE:
            self.complete = True
        else:
            _add(strange, f"notes of kind {kind}")

    def _source(self, what: bytes, when: float) -> None:
        first, last, heard, rank, beat, gap, interval, epoch, state, named, bits = _TRACKER.unpack_from(what)
        src = what[_TRACKER.size : _TRACKER.size + named]
        behind = _TRACKER.size + named + bits
        latest = self._now + AHEAD
        if not (0 <= heard <= latest and 0 <= rank <= latest + RANK_SECONDS and 0 <= beat <= latest):
            raise _Damaged("a time that is none")
        if not (0 <= gap < _ENDLESS and 0 <= interval < _ENDLESS and state in (UNWATCHED, ALIVE, SILENT)):
            raise _Damaged("an impossible heartbeat")
        if first > last or epoch < 1 or behind > len(what):
            raise _Damaged("an impossible tracker")
        if self._may_track(src):
            absent, missing = what[behind - bits : behind], what[behind:]
            seqs = first, last, int.from_bytes(absent, "little"), int.from_bytes(missing, "little"), epoch
            source = self._sources.restore(src, seqs, heard, rank, when)
            source.beat, source.gap, source.interval, source.state = beat, gap, interval, state

    def _check(self, when: float) -> None:
        if not 0 <= when <= self._now + AHEAD:
            raise _Damaged("a time that is none")

    def settle(self, clock_us: int) -> None:
        """After the last file: go on from now."""
        passed = max(0.0, self._now - self._latest)
        for src, (until, first, beyond) in sorted(self._own.items(), key=lambda item: item[1][0]):
            if until < _ENDLESS:
                # While nobody listened, no time was lost for what they had sent.
                self._sources.restore_own(src, until + passed, first, beyond)
            else:
                beyond = max(beyond, clock_us) + SPARE
                self._sources.restore_own(src, self._now + LINGER, first, beyond)
        self._sources.settle(self._now)
        self._liveness.settle(self._now)


def _add(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1
