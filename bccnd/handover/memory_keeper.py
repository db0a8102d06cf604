"""Sees to it that the memory of sources and counters outlives the daemon, and says when it does not."""

from __future__ import annotations

from typing import Final

from bccnd import log
from bccnd.handover.stored_state import Handover
from bccnd.native.memory.slots import SlotMemory

#: seconds until storing is tried again: the first time, and at most
SHORTEST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0


class MemoryKeeper:
    """``failures`` counts how often the memory could not be stored, or had no room for a source."""

    def __init__(self, handover: Handover, memory: SlotMemory) -> None:
        self.failures = 0
        self._handover = handover
        self._memory = memory
        self._refused = memory.refused
        self._pause = SHORTEST_PAUSE
        #: when storing may be tried (monotonic)
        self._next_try = 0.0

    def step(self, now: float) -> None:
        """Store the memory if that has failed so far; call it often."""
        refused = self._memory.refused - self._refused
        if refused:
            self._refused += refused
            self._report(refused, "no memory is left for more sources", "the sources silent for longest are forgotten")
        if now >= self._next_try and not self._handover.store_memory():
            self._next_try = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._report(1, "systemd does not accept their memory", "after a restart the daemon starts with no sources")

    def _report(self, count: int, error: str, effect: str) -> None:
        self.failures += count
        log.event(
            "not_kept",
            f"source trackers cannot be stored: {error}; {effect}",
            about="sources",
            remedy="raise FileDescriptorStoreMax=, LimitNOFILE=, LimitFSIZE= or MemoryMax= of the service",
            error=error,
            drop="sources_not_kept",
        )
