"""The last restart of each source, for as long as links may bring copies from before it.

Invariant: the table has a cap, and evictions are counted. Restarts are records in the memory that may outlive the
process.
"""

from __future__ import annotations

from typing import Final

from bccnd.core.observing.counters import NamedCounts
from bccnd.core.tracking.record_table import RecordTable
from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.slots import SlotMemory

#: restarts remembered
MAX_RESTARTS: Final = 4096


class RecentRestarts:
    """Restarts of the last ``patience`` seconds, by src, the oldest first; ``counted`` counts ``restarts_evicted``."""

    def __init__(self, memory: SlotMemory, counted: NamedCounts, patience: float) -> None:
        self._patience = patience
        self._counted = counted
        #: by src: the time of the last restart, and the last seq before it
        self._by_src: dict[bytes, tuple[float, int]] = {}
        self._kept = RecordTable(memory, layout.ENDED, "=dQ")

    def load(self) -> None:
        """Continue with what the memory has from the daemon before."""
        self._by_src = {src: (when, last) for src, (when, last) in self._kept.load()}

    def remember(self, src: bytes, when: float, last: int) -> None:
        """Remember that a source has restarted; ``last`` is its last seq before."""
        self._by_src.pop(src, None)
        if len(self._by_src) >= MAX_RESTARTS:
            self._counted.add("restarts_evicted")
            self._drop_oldest()
        self._by_src[src] = when, last
        self._kept.put(src, when, last)

    def predates(self, src: bytes, seq: int, now: float) -> bool:
        """Whether a seq may be from before the last restart."""
        when, last = self._by_src.get(src, (0.0, -1))
        return seq <= last and now - when <= self._patience

    def sweep(self, now: float) -> bool:
        """Forget the oldest restart if no copy from before it can come any more; False if there is none."""
        for when, _ in self._by_src.values():
            if now - when > self._patience:
                self._drop_oldest()
                return True
            break
        return False

    def _drop_oldest(self) -> None:
        src = next(iter(self._by_src))
        del self._by_src[src]
        self._kept.drop(src)
