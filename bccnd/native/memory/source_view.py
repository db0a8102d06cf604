"""View of a slot, which reads and changes its fields; see slot_layout.py."""

from __future__ import annotations

import struct
from typing import Any

from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.undo_memory import UndoMemory


def _field(at: int, form: str) -> Any:
    """Return an attribute of a slot at an offset."""
    packed = struct.Struct("=" + form)

    def read(self: Source) -> Any:
        return packed.unpack_from(self._memory.memory, self.start + at)[0]

    def write(self: Source, value: float) -> None:
        if at < layout.HEAD:
            self._memory.save_head(self)
        else:
            self._memory.save(self)
        packed.pack_into(self._memory.memory, self.start + at, value)

    return property(read, write)


class Source:
    """View of a slot, valid as long as the slot is used for the same record.

    Of a source, bit i of ``absent`` is set if the seq ``last - i`` was not seen; ``missing`` has those that are neither
    lost nor before ``first``. ``rank`` is when its place in the order is due for an update. ``beat``, ``gap``,
    ``interval`` and ``state`` belong to liveness.py. ``older`` and ``newer`` are the neighbours in the order.
    """

    state: int = _field(1, "B")
    epoch: int = _field(4, "I")
    last: int = _field(16, "Q")
    heard: float = _field(24, "d")
    rank: float = _field(32, "d")
    window: int = _field(40, "I")
    absent_size: int = _field(44, "H")
    missing_size: int = _field(46, "H")
    older: int = _field(48, "I")
    newer: int = _field(52, "I")
    first: int = _field(192, "Q")
    beat: float = _field(200, "d")
    gap: float = _field(208, "f")
    interval: float = _field(212, "f")

    def __init__(self, memory: UndoMemory, number: int) -> None:
        self._memory = memory
        #: the counters of its host, which the tracker table sets
        self.sender: Any = None
        self.number = number
        self.start = layout.SLOTS + layout.SLOT * number
        self._used = self._use()

    def _use(self) -> tuple[int, int]:
        """Return what no other use of the slot has."""
        memory = self._memory.memory
        return memory[self.start], struct.unpack_from("=Q", memory, self.start + 56)[0]

    @property
    def valid(self) -> bool:
        """Whether the slot is still used for what it was."""
        return self._used == self._use()

    @property
    def src(self) -> bytes:
        """The key."""
        memory, start = self._memory.memory, self.start
        return memory[start + layout.KEY : start + layout.KEY + memory[start + 2]]

    @property
    def absent(self) -> int:
        return self._bits(0, self.absent_size)

    @property
    def missing(self) -> int:
        return self._bits(self.absent_size, self.missing_size)

    def _bits(self, first: int, size: int) -> int:
        """Return a number of so many bytes of the window."""
        memory, link, found = self._memory.memory, self.window, b""
        while link:
            start = layout.SLOTS + layout.SLOT * link
            found += memory[start + layout.CHUNK : start + layout.SLOT]
            (link,) = struct.unpack_from("=I", memory, start + 4)
        return int.from_bytes(found[first : first + size], "little")
