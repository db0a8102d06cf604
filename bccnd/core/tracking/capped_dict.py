"""A dictionary with a cap: the oldest entry makes room for a new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class CappedDict(dict[K, V]):
    """Entries, the oldest first. Invariant: `put` adds no entry beyond ``cap``; ``evicted`` is called after it has
    removed one for that."""

    def __init__(self, cap: int, evicted: Callable[[], object] | None = None) -> None:
        self._cap = cap
        self._evicted = evicted

    def put(self, key: K, value: V) -> None:
        """Add or replace an entry; it is the newest then."""
        self.pop(key, None)
        if len(self) >= self._cap:
            del self[next(iter(self))]
            if self._evicted is not None:
                self._evicted()
        self[key] = value
