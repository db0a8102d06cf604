"""Measures stalls of the event loop by how late a periodic call is. Adds no clock reads."""

from __future__ import annotations

from typing import Final

#: seconds from which on a late call is a stall
LATE: Final = 0.1
#: seconds for which the longest stall is reported, at least, and twice as long at most: longer than a scrape interval
SHOWN: Final = 60.0


class LoopLag:
    """``total`` is the sum of all stalls, in seconds."""

    def __init__(self) -> None:
        self.total = 0.0
        self._due: float | None = None
        #: the longest one of this period and of the one before
        self._longest = self._before = 0.0
        self._began = 0.0

    def observe(self, now: float, pause: float) -> None:
        """Record the periodic call, which is next due in ``pause`` seconds."""
        late = 0.0 if self._due is None else now - self._due
        self._due = now + pause
        self._rotate(now)
        if late > LATE:
            self.total += late
            self._longest = max(self._longest, late)

    def longest(self, now: float) -> float:
        """Return the longest stall of the last minute or two, including a current one; 0 without any."""
        self._rotate(now)
        late = 0.0 if self._due is None else now - self._due
        return max(self._longest, self._before, late if late > LATE else 0.0)

    def _rotate(self, now: float) -> None:
        """Forget old stalls."""
        age = now - self._began
        if age >= SHOWN:
            self._before = self._longest if age < 2 * SHOWN else 0.0
            self._longest, self._began = 0.0, now
