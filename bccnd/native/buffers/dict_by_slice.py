"""Dictionary with bytes as keys, which are looked up as slices of a buffer without a copy.

It consists of many small dictionaries, because rebuilding a large one takes tens of milliseconds with 100,000 entries.
"""

from __future__ import annotations

from typing import Any, Final

#: expected entries per dictionary. A dictionary of more than 341 entries takes room for 1,365; nearly all stay below,
#: at 31 bytes an entry. Rebuilding one takes some 10 us.
PER_SHARD: Final = 300


class Index:
    """The dictionary. Values are not None."""

    __slots__ = ("_count", "_shards")

    def __init__(self, expected: int = 0) -> None:
        """``expected`` is the approximate number of entries."""
        self._shards: tuple[dict[bytes, Any], ...] = tuple([{} for _ in range(1 + expected // PER_SHARD)])
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> Any:
        """Return the value of a key, or None."""
        return self._shards[hash(key) % len(self._shards)].get(key)

    def get_slice(self, raw: bytes, start: int, end: int) -> Any:
        """Return the value of ``raw[start:end]``, or None. Raises IndexError for a slice outside ``raw``."""
        if not 0 <= start <= end <= len(raw):
            raise IndexError("outside the bytes")
        return self.get(raw[start:end])

    def put(self, key: bytes, value: object) -> None:
        shard = self._shards[hash(key) % len(self._shards)]
        self._count -= len(shard)
        shard[key] = value
        self._count += len(shard)

    def pop(self, key: bytes) -> Any:
        """Remove a key and return its value, or None."""
        value = self._shards[hash(key) % len(self._shards)].pop(key, None)
        self._count -= value is not None
        return value

    def shards(self) -> int:
        """Return the number of dictionaries."""
        return len(self._shards)

    def values(self, shard: int) -> list[Any]:
        """Return the values of one dictionary. Raises IndexError for an invalid number.

        A key stays in its dictionary, so iterating over them finds each lasting entry once although others change."""
        if not 0 <= shard < len(self._shards):
            raise IndexError("no such shard")
        return list(self._shards[shard].values())
