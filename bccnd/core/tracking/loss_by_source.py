"""The sources that have lost most, as records in the memory that may outlive the process."""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import Final

from bccnd.core.tracking.record_table import RecordTable
from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.slots import SlotMemory

#: sources kept; up to twice as many until those with the smallest losses are removed
MAX_LOST_BY_SOURCE: Final = 256


class LossBySource:
    """Messages lost, by src; those of sources that have lost least are forgotten."""

    def __init__(self, memory: SlotMemory) -> None:
        self.by_src: dict[bytes, int] = {}
        self._kept = RecordTable(memory, layout.LOSSES, "=Q")

    def load(self) -> None:
        """Continue with what the memory has from the daemon before."""
        self.by_src = {src: lost for src, (lost,) in self._kept.load()}

    def add(self, src: bytes, gone: int) -> None:
        lost = self.by_src
        lost[src] = lost.get(src, 0) + gone
        self._kept.put(src, lost[src])
        if len(lost) > 2 * MAX_LOST_BY_SOURCE:
            self.by_src = dict(nlargest(MAX_LOST_BY_SOURCE, lost.items(), key=itemgetter(1)))
            for other in lost.keys() - self.by_src.keys():
                self._kept.drop(other)
