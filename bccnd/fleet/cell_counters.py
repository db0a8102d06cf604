"""One counter of one receiver for all senders: totals, and what was added in each of the last minutes.

Compact: what never counted takes no array, and a minute takes one byte for a sender, or two or four where more was
counted, between the first and the last one that counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import add, lt
from typing import Final

#: minutes of history, beside the one that runs
MINUTES: Final = 10
#: a minute's counts stop there
_FULL: Final = (1 << 32) - 1
_TYPES: Final = (("B", 1 << 8), ("H", 1 << 16), ("I", 1 << 32))

#: shared by all counters that never counted; arrays are replaced where they grow
_NO_TOTALS: Final = array("Q")
_NO_COUNTS: Final = array("I")
#: a minute in which nothing was counted
_NOTHING: Final = (0, array("B"))


class CellCounters:
    """Counts by column."""

    __slots__ = ("_minutes", "_now", "_totals")

    def __init__(self) -> None:
        self._totals = _NO_TOTALS
        self._now = _NO_COUNTS
        #: for each minute, the first column that counted, and the counts from there on
        self._minutes: tuple[tuple[int, array[int]], ...] = ()

    def __bool__(self) -> bool:
        """Whether it has ever counted."""
        return bool(self._totals)

    def total(self, column: int) -> int:
        return self._totals[column] if column < len(self._totals) else 0

    def falls(self, columns: Sequence[int], totals: Sequence[int]) -> bool:
        """Whether one of these totals is below that of its column."""
        known = self._totals
        if not known:
            return False
        end = len(known)
        if max(columns) < end:
            return any(map(lt, totals, map(known.__getitem__, columns)))
        return any(column < end and total < known[column] for column, total in zip(columns, totals, strict=True))

    def raise_to(self, columns: Sequence[int], totals: Sequence[int]) -> None:
        """Raise the totals of columns."""
        if not any(totals):
            return
        if max(columns) >= len(self._totals):
            self._grow(max(column for column, total in zip(columns, totals, strict=True) if total) + 1)
        known, now = self._totals, self._now
        for column, total in zip(columns, totals, strict=True):
            if total and total > known[column]:
                added = total - known[column] + now[column]
                known[column] = total
                now[column] = added if added < _FULL else _FULL

    def _grow(self, size: int) -> None:
        more = size - len(self._totals)
        if more > 0:
            # Not `extend`, which takes more memory than it needs.
            self._totals = self._totals + array("Q", bytes(8 * more))
            self._now = self._now + array("I", bytes(4 * more))

    def begin(self, column: int) -> None:
        """Begin a column's total at 0; its history stays."""
        if column < len(self._totals):
            self._totals[column] = 0

    def clear(self, column: int) -> None:
        """Forget a column."""
        for first, counts in ((0, self._totals), (0, self._now), *self._minutes):
            if 0 <= column - first < len(counts):
                counts[column - first] = 0

    def step(self) -> None:
        """Begin a new minute."""
        most = max(self._now, default=0)
        if not self._totals:
            return
        minute = _NOTHING
        if most:
            used = [column for column, count in enumerate(self._now) if count]
            kind = next(kind for kind, end in _TYPES if most < end)
            minute = used[0], array(kind, self._now[used[0] : used[-1] + 1])
            self._now = array("I", bytes(4 * len(self._now)))
        self._minutes = (*self._minutes[1 - MINUTES :], minute)

    def totals(self) -> list[int]:
        """Return the totals of all columns that have counted."""
        return self._totals.tolist()

    def recent(self, minutes: int) -> list[int]:
        """Return what was added in this minute and the last ``minutes``, for all columns that have counted."""
        sums = self._now.tolist()
        for first, counts in self._minutes[-minutes:]:
            sums[first : first + len(counts)] = map(add, sums[first:], counts)
        return sums
