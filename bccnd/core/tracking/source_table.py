"""The tracked sources, by src and by when they were last heard, in slots of memory that may outlive the process.

Invariant: no call takes longer with more sources; the order is a linked list through the slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.slots import SlotMemory
from bccnd.native.memory.source_view import Source

_SOURCE = layout.SOURCE

#: states of a source: see liveness.py. Not watched: no heartbeat was received yet
UNWATCHED: Final = 0
ALIVE: Final = 1
SILENT: Final = 2
DEAD: Final = 3


class SourceTable:
    """All sources, from the one silent for longest to the one heard last. Slot 0 is both ends of the list."""

    def __init__(self, memory: SlotMemory) -> None:
        self.memory = memory
        self.count = 0
        #: the number of sources in that state
        self.silent = 0
        self._link_ends()

    def _link_ends(self) -> None:
        ends = self.memory.at(0)
        ends.older = ends.newer = 0

    def __len__(self) -> int:
        return self.count

    def add(self, src: bytes, seq: int, now: float, rank: float) -> int:
        """Add a new source as the newest; return its slot, or -1 if there is no memory for it."""
        memory = self.memory
        number = memory.take(_SOURCE, src)
        if number >= 0:
            at = memory.at(number)
            at.first = at.last = seq
            at.epoch = 1
            at.heard = now
            at.rank = rank
            memory.index(number)
            self._link(number)
            self.count += 1
        return number

    def remove(self, number: int) -> None:
        at = self.memory.at(number)
        if at.state == SILENT:
            self.silent -= 1
        self.memory.unindex(number)
        self._unlink(number)
        self.memory.free(number)
        self.count -= 1

    def touch(self, number: int) -> None:
        """Make a source the newest."""
        self._unlink(number)
        self._link(number)

    # The list is made anew by each daemon: its links are not saved before they change.

    def _link(self, number: int) -> None:
        memory = self.memory
        ends, at = memory.at(0), memory.at(number)
        last = memory.at(ends.older)
        at.older, at.newer = ends.older, 0
        last.newer = ends.older = number

    def _unlink(self, number: int) -> None:
        memory = self.memory
        at = memory.at(number)
        older, newer = memory.at(at.older), memory.at(at.newer)
        older.newer, newer.older = at.newer, at.older

    def load(self) -> None:
        """Order the sources that the memory has by ``rank``."""
        memory = self.memory
        numbers = memory.numbers(_SOURCE)
        ranks = {}
        for number in numbers:
            at = memory.at(number)
            ranks[number] = at.rank
        for number in sorted(numbers, key=ranks.__getitem__):
            self._link(number)
        self.count = len(numbers)

    def count_heard_since(self, since: float, lag: float) -> int:
        """Count the sources heard since a time; the order lags by up to ``lag`` seconds.

        Counts from both ends at once, since usually nearly all sources are alive, or nearly none.
        """
        memory = self.memory
        alive = silent = 0
        ends = memory.at(0)
        new, old = ends.older, ends.newer
        while new:
            newer, older = memory.at(new), memory.at(old)
            if newer.heard >= since:
                alive += 1
            elif newer.rank < since:
                return alive
            if older.heard < since:
                silent += 1
            elif older.rank - lag >= since:
                return self.count - silent
            new, old = newer.older, older.newer
        return alive

    def oldest(self) -> int:
        """Return the source silent for longest; 0 if there is none."""
        ends = self.memory.at(0)
        return ends.newer

    def newest_first(self) -> Iterator[Source]:
        """Iterate from the newest; the order must not change meanwhile."""
        number = self.memory.source(0).older
        while number:
            source = self.memory.source(number)
            yield source
            number = source.older
