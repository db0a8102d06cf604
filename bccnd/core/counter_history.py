"""What counters did in the last hour: how fast they rise, since when, and when last.

Law: a sample costs what its counters are many, whoever looks; what is remembered is bounded by time and by the last
sample: a counter that is not in it is forgotten. One that is less than it was has begun anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

#: seconds between two samples
STEP: Final = 5.0
#: seconds over which a rate can be asked for
MEMORY: Final = 60.0
#: seconds that stand together in the chart, and how many such slots make the hour that it shows
SLOT: Final = 30.0
SLOTS: Final = 120
#: seconds without a rise after which the next one is a matter of its own
QUIET: Final = 600.0


class Rise(NamedTuple):
    """When a counter rose for the first time, when it began to do so this time, and when last; None where that was
    before the first sample. On the clock of the samples, to a sample."""

    first: float | None
    since: float | None
    last: float | None


class History:
    """Samples of counters by key; those in ``charted`` have a chart."""

    def __init__(self, charted: Iterable[Hashable] = ()) -> None:
        self._samples: deque[tuple[float, dict[Hashable, int]]] = deque()
        self._rises: dict[Hashable, Rise] = {}
        self._charts: dict[Hashable, deque[list[int]]] = {key: deque(maxlen=SLOTS) for key in charted}
        self._first_slot = 0

    def sample(self, now: float, counts: Mapping[Hashable, int]) -> None:
        """These are the counters now; they are all there are. ``now`` is monotonic."""
        taken = dict(counts)
        samples = self._samples
        if not samples:
            self._first_slot = int(now / SLOT)
            self._rises = {key: Rise(None, None, None) for key, count in taken.items() if count}
        else:
            before = samples[-1][1]
            for key in self._rises.keys() - taken.keys():
                del self._rises[key]
            for key, count in taken.items():
                grown = _grown(before.get(key, 0), count)
                if grown:
                    self._rises[key] = _risen(self._rises.get(key), now)
                    if key in self._charts:
                        self._note(self._charts[key], int(now / SLOT), grown)
        samples.append((now, taken))
        # The one before the oldest that is needed stays: a rate is over no less than what it is asked for.
        while len(samples) > 2 and now - samples[1][0] >= MEMORY:
            samples.popleft()

    @staticmethod
    def _note(chart: deque[list[int]], slot: int, grown: int) -> None:
        if chart and chart[-1][0] == slot:
            chart[-1][1] += grown
        else:
            chart.append([slot, grown])

    def rise(self, key: Hashable) -> Rise | None:
        """When a counter rose; None for one that is zero since the first sample."""
        return self._rises.get(key)

    def rate(self, key: Hashable, now: float, count: int, seconds: float) -> float:
        """By how much a second a counter that is at ``count`` now has risen over the last ``seconds``, up to `MEMORY`;
        over less where less is known."""
        if not self._samples:
            return 0.0
        old_enough = (one for one in reversed(self._samples) if now - one[0] >= seconds)
        then, counts = next(old_enough, self._samples[0])
        return _grown(counts.get(key, 0), count) / (now - then) if now > then else 0.0

    def chart(self, key: Hashable, now: float) -> list[int | None]:
        """By how much a counter rose in each slot of the last hour, the present one last; None before the first
        sample."""
        present = int(now / SLOT)
        began = present - SLOTS + 1
        slots: list[int | None] = [None if began + number < self._first_slot else 0 for number in range(SLOTS)]
        if not self._samples:
            return [None] * SLOTS
        for slot, grown in self._charts[key]:
            if began <= slot <= present:
                slots[slot - began] = grown
        return slots


def _grown(before: int, count: int) -> int:
    return count - before if count >= before else count


def _risen(rise: Rise | None, now: float) -> Rise:
    if rise is None:
        return Rise(now, now, now)
    # Of what rose before the first sample nobody knows when: it is the beginning of something all the same.
    since = now if rise.last is None or now - rise.last > QUIET else rise.since
    return Rise(rise.first, since, now)
