"""When datagrams came, where they had to wait for us.

Law: a datagram is judged by when it came and not by when we were there to take it, or after every pause of ours copies
would be taken for new messages. Those that came together are judged together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

#: nanoseconds within which it makes no difference: far below any horizon that makes sense
TOGETHER_NS: Final = 250_000_000


def spans(stamps: Sequence[int]) -> Iterator[tuple[int, int, float]]:
    """Which datagrams of a batch came together: the first of them, the one behind the last, and how many seconds after
    the first of the batch they came. ``stamps`` are in nanoseconds, in order; 0 is unknown, and as the one before."""
    start, since = 0, stamps[0] if stamps else 0
    for number, stamp in enumerate(stamps):
        if stamp and since and stamp - since > TOGETHER_NS:
            yield start, number, (since - stamps[0]) * 1e-9
            start, since = number, stamp
    if stamps:
        yield start, len(stamps), (since - stamps[0]) * 1e-9
