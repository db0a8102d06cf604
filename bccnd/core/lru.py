"""LRU table of tracked sources, by src and by when they were last heard.

Invariant: no call takes longer with more sources: the index consists of many small dictionaries, and the order is a
linked list.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from bccnd.core.sender_counts import NOBODY
from bccnd.native.slice_dict import Index

_rank = attrgetter("rank")


class Source:
    """The tracker of one src.

    Bit i of ``absent`` is set if the seq ``last - i`` was not seen; ``missing`` has those that are neither lost nor
    before ``first``. ``rank`` is when its place in the order is due for an update. ``beat``, ``gap``, ``interval`` and
    ``state`` belong to liveness.py. ``sender`` has the counters of its host, once the source is tracked. ``older`` and
    ``newer`` are the neighbours in the order.
    """

    __slots__ = (
        *("absent", "epoch", "first", "heard", "last", "missing", "rank", "src"),
        *("beat", "gap", "interval", "state"),
        "sender",
        *("newer", "older"),
    )

    def __init__(self, src: bytes, seq: int, now: float) -> None:
        self.src = src
        self.first = seq
        self.last = seq
        self.absent = 0
        self.missing = 0
        self.epoch = 1
        self.heard = now
        self.rank = now
        self.beat = self.gap = self.interval = 0.0
        self.state = 0
        self.sender = NOBODY
        self.older = self.newer = self


class LruTable:
    """All sources, from the one silent for longest to the one heard last."""

    def __init__(self, expected: int) -> None:
        """``expected`` is the approximate number of sources."""
        self.index = Index(expected)
        #: sentinel between the two ends of the list
        self._end = Source(b"", 0, 0.0)

    def __len__(self) -> int:
        return len(self.index)

    def get(self, src: bytes) -> Source | None:
        found: Source | None = self.index.get(src)
        return found

    def add(self, source: Source) -> None:
        """Add a new source as the newest."""
        self.index.put(source.src, source)
        self._link(source)

    def remove(self, source: Source) -> None:
        self.index.pop(source.src)
        self._unlink(source)
        # Reference cycles would be freed only by the collector, which skips old objects.
        source.older = source.newer = self._end

    def touch(self, source: Source) -> None:
        """Make a source the newest."""
        self._unlink(source)
        self._link(source)

    def _link(self, source: Source) -> None:
        end = self._end
        last = end.older
        source.older, source.newer = last, end
        last.newer = end.older = source

    def _unlink(self, source: Source) -> None:
        older, newer = source.older, source.newer
        older.newer, newer.older = newer, older

    def sort(self) -> None:
        """Order the sources by ``rank``; the sort is stable."""
        line = sorted(self.oldest_first(), key=_rank)
        self._end.older = self._end.newer = self._end
        for source in line:
            self._link(source)

    def count_heard_since(self, since: float, lag: float) -> int:
        """Count the sources heard since a time; the order lags by up to ``lag`` seconds.

        Counts from both ends at once, since usually nearly all sources are alive, or nearly none.
        """
        alive = silent = 0
        new, old = self._end.older, self._end.newer
        while new is not self._end:
            if new.heard >= since:
                alive += 1
            elif new.rank < since:
                return alive
            if old.heard < since:
                silent += 1
            elif old.rank - lag >= since:
                return len(self) - silent
            new, old = new.older, old.newer
        return alive

    @property
    def oldest(self) -> Source | None:
        """The source silent for longest."""
        source = self._end.newer
        return source if source is not self._end else None

    def oldest_first(self) -> Iterator[Source]:
        """Iterate from the oldest; the order must not change meanwhile."""
        source = self._end.newer
        while source is not self._end:
            yield source
            source = source.newer

    def newest_first(self) -> Iterator[Source]:
        """Iterate from the newest; the order must not change meanwhile."""
        source = self._end.older
        while source is not self._end:
            yield source
            source = source.older
