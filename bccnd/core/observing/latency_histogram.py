"""Histogram of latencies, in buckets that double."""

from __future__ import annotations

from typing import Final

from bccnd.native.buffers.counts import Counts

#: the first bound of the histogram, in seconds
FIRST_BOUND: Final = 25e-6
#: further bounds, each twice the one before
DOUBLINGS: Final = 16
#: seconds, upper bounds
LATENCY_BOUNDS: Final = tuple([FIRST_BOUND * 2**n for n in range(DOUBLINGS + 1)])


class LatencyHistogram:
    """Seconds by bucket; the last bucket is everything above the last bound."""

    __slots__ = ("_buckets", "sum")

    def __init__(self) -> None:
        self._buckets = Counts(len(LATENCY_BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        # negative if the wall clock was set back
        if seconds > 0.0:
            self.sum += seconds
        bound = FIRST_BOUND
        bucket = 0
        while seconds > bound and bucket <= DOUBLINGS:
            bound *= 2.0
            bucket += 1
        self._buckets.add(bucket)

    @property
    def buckets(self) -> list[int]:
        """Latencies by bucket; a copy."""
        found: list[int] = self._buckets.values()
        return found
