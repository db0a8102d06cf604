"""Keeps the tracked sources by src, and in the order in which they were last heard.

Invariant: no call takes longer with more sources; the order is a linked list through them.
"""

from __future__ import annotations

from collections.abc import Iterator

from bccnd.core.tracking.source import SILENT, Source
from bccnd.native.buffers.dict_by_slice import Index


class SourceTable:
    """All sources, from the one silent for longest to the one heard last. ``expected`` is their approximate number."""

    def __init__(self, expected: int = 0) -> None:
        self.by_src = Index(expected)
        self.count = 0
        #: the number of sources in that state
        self.silent = 0
        self._oldest: Source | None = None
        self._newest: Source | None = None

    def __len__(self) -> int:
        return self.count

    def add(self, source: Source) -> None:
        """Add a source as the newest."""
        self.by_src.put(source.src, source)
        self._link(source)
        self.count += 1
        self.silent += source.state == SILENT

    def remove(self, source: Source) -> None:
        self.silent -= source.state == SILENT
        self.by_src.pop(source.src)
        self._unlink(source)
        source.tracked = False
        self.count -= 1

    def touch(self, source: Source) -> None:
        """Make a source the newest."""
        if source is not self._newest:
            self._unlink(source)
            self._link(source)

    def _link(self, source: Source) -> None:
        source.older, source.newer = self._newest, None
        if self._newest is None:
            self._oldest = source
        else:
            self._newest.newer = source
        self._newest = source

    def _unlink(self, source: Source) -> None:
        older, newer = source.older, source.newer
        if older is None:
            self._oldest = newer
        else:
            older.newer = newer
        if newer is None:
            self._newest = older
        else:
            newer.older = older
        source.older = source.newer = None

    def count_heard_since(self, since: float, lag: float) -> int:
        """Count the sources heard since a time; the order lags by up to ``lag`` seconds.

        Counts from both ends at once, since usually nearly all sources are alive, or nearly none.
        """
        alive = silent = 0
        newer, older = self._newest, self._oldest
        while newer is not None and older is not None:
            if newer.heard >= since:
                alive += 1
            elif newer.rank < since:
                return alive
            if older.heard < since:
                silent += 1
            elif older.rank - lag >= since:
                return self.count - silent
            newer, older = newer.older, older.newer
        return alive

    def oldest(self) -> Source | None:
        """Return the source silent for longest; None if there is none."""
        return self._oldest

    def oldest_first(self) -> Iterator[Source]:
        """Iterate from the oldest; the order must not change meanwhile."""
        source = self._oldest
        while source is not None:
            yield source
            source = source.newer

    def newest_first(self) -> Iterator[Source]:
        """Iterate from the newest; the order must not change meanwhile."""
        source = self._newest
        while source is not None:
            yield source
            source = source.older
