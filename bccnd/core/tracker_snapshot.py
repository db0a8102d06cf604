"""Snapshot of all trackers, as entries of the tracker log."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.dedup import TrackerTable
from bccnd.core.liveness import Liveness
from bccnd.core.lru import Source
from bccnd.core.tracker_log import TRACKER, Entry, TrackerLog, anonymous_entry, death_entry, identity_entry

#: first, last, heard, rank, beat, gap, interval, epoch, state, the sizes of src and of absent; src, absent and missing
#: follow, the latter two as little-endian integers
TRACKER_HEAD: Final = struct.Struct("=QQdddddiBBH")


def start_log(
    sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness, write: Callable[[bytes], int], now: float
) -> TrackerLog:
    """Begin a file with a snapshot, and let the trackers log their changes in it."""
    tracker_log = TrackerLog(write, Snapshot(sources, anonymous, liveness), now)
    sources.tracker_log = anonymous.tracker_log = liveness.tracker_log = tracker_log
    return tracker_log


class Snapshot:
    """Iterates over all trackers when called. They may change meanwhile, since each change is logged as well."""

    def __init__(self, sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness) -> None:
        self._sources = sources
        self._anonymous = anonymous
        self._liveness = liveness

    def __call__(self, clock: Callable[[], float]) -> Iterator[Entry | None]:
        sources, anonymous, liveness = self._sources, self._anonymous, self._liveness
        for src in sources.local_srcs():
            own = sources.local_identity(src)
            yield None if own is None else identity_entry(src, own.until, own.first, own.next)
        for src in list(liveness.dead):
            death = liveness.dead.get(src)
            yield None if death is None else death_entry(src, *death)
        for key in anonymous.digests():
            when = anonymous.when(key)
            yield anonymous_entry(key, when) if when is not None and clock() - when <= anonymous.horizon else None
        for shard in range(sources.shards()):
            for source in sources.shard(shard):
                yield (TRACKER, pack_tracker(source)) if sources.get(source.src) is source else None
            yield None


def pack_tracker(source: Source) -> bytes:
    absent = _pack_bits(source.absent)
    times = source.heard, source.rank, source.beat, source.gap, source.interval
    sizes = len(source.src), len(absent)
    head = TRACKER_HEAD.pack(source.first, source.last, *times, source.epoch, source.state, *sizes)
    return head + source.src + absent + _pack_bits(source.missing)


def _pack_bits(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "little") if number else b""
