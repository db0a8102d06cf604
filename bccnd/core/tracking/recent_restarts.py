"""The last restart of each source, for as long as links may bring copies from before it.

Invariant: the table has a cap, and evictions are counted.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from bccnd.core.observing.counters import NamedCounts
from bccnd.core.tracking.capped_dict import CappedDict

#: restarts remembered
MAX_RESTARTS: Final = 4096


class Restart(NamedTuple):
    """When a source has restarted, and its last seq before."""

    when: float
    last: int


class RecentRestarts:
    """Restarts of the last ``patience`` seconds, by src, the oldest first; ``counted`` counts ``restarts_evicted``."""

    def __init__(self, counted: NamedCounts, patience: float) -> None:
        self._patience = patience
        self.by_src: CappedDict[bytes, Restart] = CappedDict(MAX_RESTARTS, partial(counted.add, "restarts_evicted"))

    def remember(self, src: bytes, when: float, last: int) -> None:
        """Remember that a source has restarted; ``last`` is its last seq before."""
        self.by_src.put(src, Restart(when, last))

    def predates(self, src: bytes, seq: int, now: float) -> bool:
        """Whether a seq may be from before the last restart."""
        when, last = self.by_src.get(src, (0.0, -1))
        return seq <= last and now - when <= self._patience

    def sweep(self, now: float) -> bool:
        """Forget the oldest restart if no copy from before it can come any more; False if there is none."""
        for src, (when, _) in self.by_src.items():
            if now - when > self._patience:
                self.by_src.pop(src)
                return True
            break
        return False
