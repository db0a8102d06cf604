"""Memory for slots and counters that ends with the process: without a hand-over, and in tests."""

from __future__ import annotations

from mmap import mmap

from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.slots import SlotMemory


def private_memory(slots: int = 0x40000) -> SlotMemory:
    """Return memory with room for so many slots that ends with this process; what is unused takes none."""
    return SlotMemory(mmap(-1, layout.size_for(slots)))
