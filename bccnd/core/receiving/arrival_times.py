"""Computes when datagrams arrived that have waited in a socket, and groups those that arrived together.

Datagrams are judged by their arrival, or copies would count as new messages after each pause of the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

#: nanoseconds within which arrivals are one group: far below any horizon
TOGETHER_NS: Final = 250_000_000
#: nanoseconds that a datagram may have waited: longer than a restart takes, shorter than a clock is set by
MAX_WAIT_NS: Final = 60_000_000_000


def arrival(now: float, waited_ns: int) -> float:
    """Return when a datagram arrived that has waited, by the monotonic clock, whose time is ``now``.

    The wait is measured by the wall clock, which may be set meanwhile. Nothing arrived before the monotonic clock's
    zero.
    """
    return max(0.0, now - waited_ns * 1e-9) if 0 < waited_ns < MAX_WAIT_NS else now


def spans(stamps: Sequence[int]) -> Iterator[tuple[int, int, float]]:
    """Iterate over groups as start, end and seconds after the first datagram of the batch. ``stamps`` are ordered, in
    nanoseconds; 0 is unknown and counts as the one before."""
    start, since = 0, stamps[0] if stamps else 0
    for number, stamp in enumerate(stamps):
        if stamp and since and stamp - since > TOGETHER_NS:
            yield start, number, (since - stamps[0]) * 1e-9
            start, since = number, stamp
    if stamps:
        yield start, len(stamps), (since - stamps[0]) * 1e-9
