"""Who is tracked: found by src, and in line by when they were last heard.

Law: no call takes longer the more are tracked. One large dictionary would be built anew every so often while sources
come and go, for tens of milliseconds with 100,000 of them; so there are many small ones, and each source knows its
neighbours in line itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: sources per dictionary, about: to build one of these anew takes some 20 us
_PER_SHARD: Final = 512


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


class Roster:
    """All sources, in line from the one silent for longest to the one heard last.

    ``shards[hash(src) & mask]`` is the dictionary that has a src, for who cannot afford a call.
    """

    def __init__(self, expected: int) -> None:
        """``expected`` is about how many there may be."""
        count = 1 << max(0, (expected // _PER_SHARD).bit_length())
        self.shards: tuple[dict[bytes, Source], ...] = tuple({} for _ in range(count))
        self.mask = count - 1
        self._count = 0
        #: stands between the two ends of the line
        self._end = Source(b"", 0, 0.0)

    def __len__(self) -> int:
        return self._count

    def get(self, src: bytes) -> Source | None:
        return self.shards[hash(src) & self.mask].get(src)

    def add(self, source: Source) -> None:
        """A source that is not there yet; it comes to the new end of the line."""
        self.shards[hash(source.src) & self.mask][source.src] = source
        self._count += 1
        self._link(source)

    def remove(self, source: Source) -> None:
        del self.shards[hash(source.src) & self.mask][source.src]
        self._count -= 1
        self._unlink(source)
        # Nobody is kept alive by whom he once stood beside.
        source.older = source.newer = source

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
