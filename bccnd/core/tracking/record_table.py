"""Records by key in the memory that may outlive the process: what is remembered beside the sources.

Invariant: what the memory has no room for is still known to this process, and counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from bccnd.native.memory.slots import SlotMemory


class RecordTable:
    """Keeps a copy of a dictionary's entries in slots of one kind; ``form`` is that of their values."""

    def __init__(self, memory: SlotMemory, kind: int, form: str) -> None:
        self._memory = memory
        self._kind = kind
        self._form = struct.Struct(form)
        self._numbers: dict[bytes, int] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def load(self) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
        """Yield the records that the memory has, in the order in which they were put."""
        memory = self._memory
        for source in sorted(map(memory.source, memory.numbers(self._kind)), key=lambda one: one.last):
            number = source.number
            if source.src in self._numbers:
                memory.free(number)
                continue
            self._numbers[source.src] = number
            self._order = source.last
            yield source.src, self._form.unpack_from(memory.body(number))

    def put(self, key: bytes, *values: float) -> None:
        """Add or replace a record; it is the newest then."""
        memory = self._memory
        mine = memory.start()
        number = self._numbers.pop(key, -1)
        if number < 0:
            number = memory.take(self._kind, key)
        if number >= 0:
            self._numbers[key] = number
            self._order += 1
            memory.source(number).last = self._order
            memory.set_body(number, self._form.pack(*values))
        if mine:
            memory.commit()

    def drop(self, key: bytes) -> None:
        """Remove a record, if it is there."""
        number = self._numbers.pop(key, None)
        if number is not None:
            mine = self._memory.start()
            self._memory.free(number)
            if mine:
                self._memory.commit()

    def drop_oldest(self) -> None:
        """Remove the record that was put before all others, if there is one."""
        for key in self._numbers:
            self.drop(key)
            break
