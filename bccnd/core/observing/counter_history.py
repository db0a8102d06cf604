"""History of counters over the last hour: rates, charts, and when they rose.

Memory is bounded by time and by the counters in the last sample. A counter below its previous value has restarted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

#: seconds between two samples
STEP: Final = 5.0
#: longest interval of a rate, in seconds
MEMORY: Final = 60.0
#: seconds per slot of a chart, and slots per chart
SLOT: Final = 30.0
SLOTS: Final = 120
#: seconds without a rise after which the next one counts as new
QUIET: Final = 600.0


class Rise(NamedTuple):
    """When a counter first rose, since when it has been rising, and when it last rose; None if before the first
    sample."""

    first: float | None
    since: float | None
    last: float | None


class History:
    """Samples of counters by key, with charts of those in ``charted``."""

    def __init__(self, charted: Iterable[str] = ()) -> None:
        self._samples: deque[tuple[float, dict[str, int]]] = deque()
        self._rises: dict[str, Rise] = {}
        self._charts: dict[str, deque[list[int]]] = {key: deque(maxlen=SLOTS) for key in charted}
        self._first_slot = 0

    def sample(self, now: float, counts: Mapping[str, int]) -> None:
        """Add a sample of all counters; ``now`` is monotonic."""
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
        # keeps one sample older than needed, so that a rate covers its whole interval
        while len(samples) > 2 and now - samples[1][0] >= MEMORY:
            samples.popleft()

    @staticmethod
    def _note(chart: deque[list[int]], slot: int, grown: int) -> None:
        if chart and chart[-1][0] == slot:
            chart[-1][1] += grown
        else:
            chart.append([slot, grown])

    def rise(self, key: str) -> Rise | None:
        """Return when a counter rose; None if it has been zero since the first sample."""
        return self._rises.get(key)

    def rate(self, key: str, now: float, count: int, seconds: float) -> float:
        """Return the rate per second of a counter, now at ``count``, over the last ``seconds`` (at most `MEMORY`), or
        over less if there are no older samples."""
        if not self._samples:
            return 0.0
        old_enough = (one for one in reversed(self._samples) if now - one[0] >= seconds)
        then, counts = next(old_enough, self._samples[0])
        return _grown(counts.get(key, 0), count) / (now - then) if now > then else 0.0

    def chart(self, key: str, now: float) -> list[int | None]:
        """Return the rise in each slot of the last hour, the current one last; None before the first sample."""
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
    # A rise before the first sample has no known time, so the next one counts as new.
    since = now if rise.last is None or now - rise.last > QUIET else rise.since
    return Rise(rise.first, since, now)
