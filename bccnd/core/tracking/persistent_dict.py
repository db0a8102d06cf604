"""A dictionary whose entries are also records in the memory that may outlive the process.

Invariant: `put` adds no entry beyond the cap. What the memory has no room for is still in the dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bccnd.core.tracking.record_table import RecordTable
from bccnd.native.memory.slots import SlotMemory

V = TypeVar("V", bound=tuple[Any, ...])


class PersistentDict(dict[bytes, V]):
    """Tuples by key, the oldest first. Only the methods below change the records too; do not use those of `dict`."""

    def __init__(
        self,
        memory: SlotMemory,
        kind: int,
        form: str,
        make: Callable[..., V],
        cap: int,
        evicted: Callable[[], object] | None = None,
    ) -> None:
        """``kind`` and ``form`` are those of the records; ``make`` gets the fields of one and returns its value;
        ``evicted`` is called after an entry was removed because of the cap."""
        self._records = RecordTable(memory, kind, form)
        self._make = make
        self._cap = cap
        self._evicted = evicted

    def load(self) -> None:
        """Add the entries that the memory has from the daemon before."""
        self.update((key, self._make(*fields)) for key, fields in self._records.load())

    def put(self, key: bytes, value: V) -> None:
        """Add or replace an entry; it is the newest then. At the cap, the oldest one is removed first."""
        self.pop(key, None)
        if len(self) >= self._cap:
            self.remove(next(iter(self)))
            if self._evicted is not None:
                self._evicted()
        self.replace(key, value)

    def replace(self, key: bytes, value: V) -> None:
        """Replace the value of an entry, which keeps its place until the next daemon loads it as the newest."""
        self[key] = value
        self._records.put(key, *value)

    def remove(self, key: bytes) -> V | None:
        """Remove an entry and return its value; None if there is none."""
        value = self.pop(key, None)
        if value is not None:
            self._records.drop(key)
        return value
