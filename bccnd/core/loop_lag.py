"""How long the loop stood still: what a turn that takes too long leaves behind.

Law: nobody looks at a clock for this who does not look at one anyway. Somebody comes by again and again and says when
he is to come next; by how much he is late is how long something else has held the loop.
"""

from __future__ import annotations

from typing import Final

#: seconds by which everything may be late on a busy machine; what is later than that is a stall
LATE: Final = 0.1
#: seconds that the longest stall is shown for at the least, and twice as long at most: longer than between two scrapes
SHOWN: Final = 60.0


class LoopLag:
    """``total`` is the seconds of all stalls so far."""

    def __init__(self) -> None:
        self.total = 0.0
        self._due: float | None = None
        #: the longest one of the present minute, and of the one before
        self._longest = self._before = 0.0
        self._began = 0.0

    def observe(self, now: float, pause: float) -> None:
        """Somebody comes by, and is to be here again in ``pause`` seconds."""
        late = 0.0 if self._due is None else now - self._due
        self._due = now + pause
        self._turn(now)
        if late > LATE:
            self.total += late
            self._longest = max(self._longest, late)

    def longest(self, now: float) -> float:
        """Seconds of the longest stall of the last minute or two, one that lasts included; 0 without any."""
        self._turn(now)
        late = 0.0 if self._due is None else now - self._due
        return max(self._longest, self._before, late if late > LATE else 0.0)

    def _turn(self, now: float) -> None:
        """Let what is too old be forgotten."""
        age = now - self._began
        if age >= SHOWN:
            self._before = self._longest if age < 2 * SHOWN else 0.0
            self._longest, self._began = 0.0, now
