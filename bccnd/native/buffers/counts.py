"""Counters of 64 bits, found by number; the compiled twin counts without Python objects (counts.pyx)."""

from __future__ import annotations


class Counts:
    """So many counters, from zero."""

    def __init__(self, size: int) -> None:
        self._counts = [0] * size

    def add(self, number: int, amount: int = 1) -> None:
        """Raises IndexError for a number that there is not."""
        if not 0 <= number < len(self._counts):
            raise IndexError(number)
        self._counts[number] += amount

    def values(self) -> list[int]:
        """Return a copy of all."""
        return self._counts.copy()
