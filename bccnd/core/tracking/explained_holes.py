"""Decides whether a hole in the numbers of a source is a loss, by its own rate, for the daemon and the pipeline alike.

Times are in whole microseconds, so that the answer is exact.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

#: a hole is a loss up to so many times what the source sends at its rate
RATES: Final = 2
#: microseconds that a run lasts at least, for a few messages close to each other are no rate
LEAST: Final = 1_000_000


def rate_of_run(numbers: int, duration: int) -> Fraction:
    """Return the numbers a microsecond that a source used in a run of so many."""
    return Fraction(numbers, max(duration, LEAST))


def is_explained(skipped: int, rate: Fraction | int, silence: int) -> bool:
    """Whether a source can have sent all that it skipped while nothing was received of it."""
    return skipped <= RATES * rate * silence
