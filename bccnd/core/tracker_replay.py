"""Replay of the tracker log: restores the trackers of the daemon before this one."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.bccn1 import UNKNOWN_SRC, check_src, read_seq
from bccnd.core.dedup import RANK_SECONDS, RELEASE_DELAY, TrackerTable
from bccnd.core.liveness import ALIVE, SILENT, UNWATCHED, Death, Liveness
from bccnd.core.tracker_log import (
    ANONYMOUS,
    COMPLETE,
    DEATH,
    DEATH_TIMES,
    DIRECT,
    ENTRY_HEAD,
    FILE_HEADER,
    HEARTBEAT,
    IDENTITY,
    LINKED,
    RECORD_HEAD,
    REMOVED,
    SEQ_RANGE,
    STATE,
    TIME,
    TRACKER,
    VERSION,
)
from bccnd.core.tracker_snapshot import TRACKER_HEAD
from bccnd.errors import BadDatagram
from bccnd.native import scan

#: a longer record is damage: the longest that are written have a tenth of that
MAX_RECORD: Final = 1 << 24
#: seconds by which a record may be in the future: clocks are not read at the same moment
AHEAD: Final = 1.0
#: seqs that may have been used under an identity since the last logged one. Seqs follow the wall clock, but are ahead
#: of it where that was set back; a seq that is used twice loses a message.
SPARE: Final = 1 << 20

#: of the trackers: what the daemon before has counted
_COUNTERS: Final = ("lost", "restarts", "jumps", "expired", "evicted", "restarts_evicted")
_INFINITY: Final = float("inf")
_COLON: Final = ord(":")
_SIZE: Final = struct.Struct("=I")


@dataclass(frozen=True)
class ReplayResult:
    """Trackers restored, records and datagrams read, whether the last file is complete, and what was not understood."""

    sources: int
    records: int
    datagrams: int
    complete: bool
    problems: tuple[str, ...]


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
    """Restore new trackers from files, the older one first, by the rules in force. Start the next log right after.

    The record of input ``skip_serial`` is skipped, since that input is processed again. No callbacks are called, and
    what is read changes no counters. Watched sources stay watched, and silence counts from ``now`` on; missing seqs
    have the horizon's time from then. Local identities last as long as they would have. For those in use, the last seq
    was not logged: it is taken to be below ``clock_us`` (wall clock in microseconds), or the last logged one, plus
    SPARE.
    """
    reader = _Reader(sources, anonymous, liveness, now, skip_serial)
    counters = [getattr(sources, name) for name in _COUNTERS]
    lost_by_source, dead_evicted = dict(sources.lost_by_source), liveness.dead_evicted
    for data in files:
        reader.read(data)
    for name, count in zip(_COUNTERS, counters, strict=True):
        setattr(sources, name, count)
    sources.lost_by_source, liveness.dead_evicted = lost_by_source, dead_evicted
    reader.finish(clock_us)
    return ReplayResult(len(sources), reader.records, reader.datagrams, reader.complete, tuple(reader.problems))


class _Damaged(Exception):
    """Bytes that no writer can have produced."""


class _Reader:
    """Reads files one after the other."""

    def __init__(
        self, sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness, now: float, skip_serial: int
    ) -> None:
        self.records = 0
        self.datagrams = 0
        self.complete = False
        self.problems: list[str] = []
        self._sources = sources
        self._anonymous = anonymous
        self._liveness = liveness
        self._now = now
        self._skip = skip_serial
        self._files = 0
        #: when the last record was written
        self._latest = 0.0
        #: local identities: expiry, first seq and next seq
        self._own: dict[bytes, tuple[float, int, int]] = {}

    def read(self, data: bytes) -> None:
        """Apply a file as far as it can be understood."""
        self._files += 1
        self.complete = False
        if not data.startswith(FILE_HEADER):
            if not FILE_HEADER.startswith(data):  # otherwise the writer was killed before the header was complete
                self.problems.append(f"file {self._files}: not a tracker log of version {VERSION}; ignored")
            return
        unknown: dict[str, int] = {}
        at = len(FILE_HEADER)
        try:
            while at + _SIZE.size <= len(data):
                (size,) = _SIZE.unpack_from(data, at)
                if size > MAX_RECORD or size < 1:
                    raise _Damaged(f"a record of {size} bytes")
                end = at + _SIZE.size + size
                if end > len(data):  # the writer was killed meanwhile
                    break
                kind = data[at + _SIZE.size]
                if kind in (DIRECT, LINKED):
                    self._apply_record(data, at, end, kind == LINKED, unknown)
                else:
                    _count(unknown, f"records of kind {kind}")
                at = end
        except (_Damaged, BadDatagram, struct.error) as error:
            self.problems.append(
                f"file {self._files}: damaged in the record at byte {at} ({error}); the rest is ignored"
            )
        for what, count in unknown.items():
            self.problems.append(f"file {self._files}: {count} {what} are unknown to this version and ignored")

    def _apply_record(self, data: bytes, start: int, end: int, from_link: bool, unknown: dict[str, int]) -> None:
        if end < start + RECORD_HEAD.size:
            raise _Damaged("it is too short")
        _, _, serial, when = RECORD_HEAD.unpack_from(data, start)
        if not 0 <= when <= self._now + AHEAD:
            raise _Damaged("its time is impossible")
        if serial and serial == self._skip:
            return
        self._latest = max(self._latest, when)  # input that waited is older
        self.records += 1
        at = start + RECORD_HEAD.size
        if at == end:
            self._sources.pass_time(when)
        while at < end:
            kind = data[at]
            if kind < HEARTBEAT:
                at += 1
                size = kind
                if size == 0 or at + size > end:
                    raise _Damaged("an entry is longer than the record")
                self._apply_datagram(data, at, at + size, when, from_link)
            else:
                if at + ENTRY_HEAD.size > end:
                    raise _Damaged("an entry is longer than the record")
                _, size = ENTRY_HEAD.unpack_from(data, at)
                at += ENTRY_HEAD.size
                if at + size > end:
                    raise _Damaged("an entry is longer than the record")
                self._apply_entry(kind, data[at : at + size], when, unknown)
            at += size

    def _apply_datagram(self, data: bytes, start: int, end: int, when: float, from_link: bool) -> None:
        colon = scan.find(data, _COLON, start)
        if not start < colon < end:
            raise _Damaged("a datagram without a seq")
        self.datagrams += 1
        found = scan.parse_uint(data, colon + 1, end)
        source = self._sources.get_slice(data, start, colon)
        if source is not None and found >= 0:
            self._sources.follow(source, found, when, from_link)
            return
        src, seq = data[start:colon], read_seq(data[colon + 1 : end])
        if source is not None:
            self._sources.follow(source, seq, when, from_link)
        elif self._may_track(src):
            self._sources.start(src, seq, when)

    def _may_track(self, src: bytes) -> bool:
        """Whether a tracked src may still be tracked: it is not a local identity now."""
        check_src(src)
        if src == UNKNOWN_SRC:
            raise _Damaged("a tracker of the anonymous src")
        # A local identity is tracked only after it has expired.
        self._own.pop(src, None)
        return self._sources.local_identity(src) is None

    def _apply_entry(self, kind: int, body: bytes, when: float, unknown: dict[str, int]) -> None:
        if kind == HEARTBEAT:
            self._liveness.restore_heartbeat(body, when)
        elif kind == REMOVED:
            self._sources.drop(body)
        elif kind == STATE:
            if body[:1] not in (bytes((ALIVE,)), bytes((SILENT,))):
                raise _Damaged("an unknown state")
            self._liveness.restore_state(body[1:], body[0])
        elif kind == DEATH:
            heard, beat, gap = DEATH_TIMES.unpack_from(body)
            self._check_time(heard)
            self._check_time(beat)
            self._check_time(gap)
            check_src(body[DEATH_TIMES.size :])
            self._liveness.restore_death(body[DEATH_TIMES.size :], Death(heard, beat, gap))
        elif kind == ANONYMOUS:
            (since,) = TIME.unpack_from(body)
            self._check_time(since)
            self._anonymous.restore(body[TIME.size :], since)
        elif kind == IDENTITY:
            until, first, following = SEQ_RANGE.unpack_from(body)
            src = body[SEQ_RANGE.size :]
            check_src(src)
            if not until >= 0:
                raise _Damaged("an impossible time")
            self._own[src] = until, first, following
        elif kind == TRACKER:
            self._apply_tracker(body, when)
        elif kind == COMPLETE:
            self.complete = True
        else:
            _count(unknown, f"entries of kind {kind}")

    def _apply_tracker(self, body: bytes, when: float) -> None:
        first, last, heard, rank, beat, gap, interval, epoch, state, src_size, bits = TRACKER_HEAD.unpack_from(body)
        src = body[TRACKER_HEAD.size : TRACKER_HEAD.size + src_size]
        end = TRACKER_HEAD.size + src_size + bits
        latest = self._now + AHEAD
        if not (0 <= heard <= latest and 0 <= rank <= latest + RANK_SECONDS and 0 <= beat <= latest):
            raise _Damaged("an impossible time")
        if not (0 <= gap < _INFINITY and 0 <= interval < _INFINITY and state in (UNWATCHED, ALIVE, SILENT)):
            raise _Damaged("an impossible heartbeat")
        if first > last or epoch < 1 or end > len(body):
            raise _Damaged("an impossible tracker")
        if self._may_track(src):
            absent, missing = body[end - bits : end], body[end:]
            seqs = first, last, int.from_bytes(absent, "little"), int.from_bytes(missing, "little"), epoch
            source = self._sources.restore(src, seqs, heard, rank, when)
            source.beat, source.gap, source.interval, source.state = beat, gap, interval, state

    def _check_time(self, when: float) -> None:
        if not 0 <= when <= self._now + AHEAD:
            raise _Damaged("an impossible time")

    def finish(self, clock_us: int) -> None:
        """Continue from now, after the last file."""
        passed = max(0.0, self._now - self._latest)
        for src, (until, first, following) in sorted(self._own.items(), key=lambda item: item[1][0]):
            if until < _INFINITY:
                # The time without a daemon does not count: broadcasts wait in the socket meanwhile.
                self._sources.restore_own(src, until + passed, first, following)
            else:
                following = max(following, clock_us) + SPARE
                self._sources.restore_own(src, self._now + RELEASE_DELAY, first, following)
        self._sources.settle(self._now)
        self._liveness.settle(self._now)


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1
