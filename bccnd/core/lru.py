"""Who is tracked: found by src, and in line by when they were last heard.

Law: no call takes longer the more are tracked: the index is one of many small dictionaries, and each source knows its
neighbours in line itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from bccnd.native.slice_dict import Index

_rank = attrgetter("rank")


class Source:
    """What is known of one src.

    Bit i of ``absent`` stands for the seq ``last - i``, not seen so far; ``missing`` holds those of them that are
    neither lost nor older than what was first heard. ``rank`` is when its place in line is due for a change. ``beat``,
    ``gap``, ``interval`` and ``state`` are what liveness.py keeps of those that send heartbeats; kept here, they cost
    next to nothing and go when the tracker goes. ``older`` and ``newer`` are the neighbours in line.
    """

    __slots__ = (
        *("absent", "epoch", "first", "heard", "last", "missing", "rank", "src"),
        *("beat", "gap", "interval", "state"),
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
        self.older = self.newer = self


class LruTable:
    """All sources, in line from the one silent for longest to the one heard last."""

    def __init__(self, expected: int) -> None:
        """``expected`` is about how many there may be."""
        self.index = Index(expected)
        #: stands between the two ends of the line
        self._end = Source(b"", 0, 0.0)

    def __len__(self) -> int:
        return len(self.index)

    def get(self, src: bytes) -> Source | None:
        found: Source | None = self.index.get(src)
        return found

    def add(self, source: Source) -> None:
        """A source that is not there yet; it comes to the new end of the line."""
        self.index.put(source.src, source)
        self._link(source)

    def remove(self, source: Source) -> None:
        self.index.pop(source.src)
        self._unlink(source)
        # Nobody is kept alive by whom he once stood beside, nor by himself: it would take the collector to free him,
        # which does not look at what is old.
        source.older = source.newer = self._end

    def touch(self, source: Source) -> None:
        """It was just heard: to the new end of the line."""
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

    def put_in_order(self) -> None:
        """The line anew, by ``rank``; those of the same rank stay as they stand."""
        line = sorted(self.oldest_first(), key=_rank)
        self._end.older = self._end.newer = self._end
        for source in line:
            self._link(source)

    def heard_since(self, since: float, lag: float) -> int:
        """How many were heard since then; places in line lag behind by up to so many seconds.

        Counted from both ends of the line at once, as usually nearly all of them are alive or nearly none.
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
        """The one silent for longest."""
        source = self._end.newer
        return source if source is not self._end else None

    def oldest_first(self) -> Iterator[Source]:
        """All of them, the one silent for longest first; the line must not change meanwhile."""
        source = self._end.newer
        while source is not self._end:
            yield source
            source = source.newer

    def newest_first(self) -> Iterator[Source]:
        """All of them, the one heard last first; the line must not change meanwhile."""
        source = self._end.older
        while source is not self._end:
            yield source
            source = source.older
