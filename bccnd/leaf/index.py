"""From bytes to what belongs to them, asked with a part of other bytes.

Law: it finds what a dictionary finds. One large dictionary would be built anew every so often while entries come and
go, for tens of milliseconds with 100,000 of them; so where many are expected there are many small ones. Compiled, no
copy is made of what is looked for.
"""

from __future__ import annotations

from typing import Any, Final

#: entries per dictionary, about: to build one of these anew takes some 20 us
PER_SHARD: Final = 512


class Index:
    """A dictionary with bytes as keys."""

    __slots__ = ("_count", "_mask", "_shards")

    def __init__(self, expected: int = 0) -> None:
        """``expected`` is about how many entries there may be."""
        count = 1 << max(0, (expected // PER_SHARD).bit_length())
        self._shards: tuple[dict[bytes, Any], ...] = tuple([{} for _ in range(count)])
        self._mask = count - 1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> Any:
        """What belongs to a key, None if nothing does."""
        return self._shards[hash(key) & self._mask].get(key)

    def part(self, raw: bytes, start: int, end: int) -> Any:
        """What belongs to ``raw[start:end]``, None if nothing does. Raises IndexError for what is not in ``raw``."""
        if not 0 <= start <= end <= len(raw):
            raise IndexError("outside the bytes")
        return self.get(raw[start:end])

    def put(self, key: bytes, value: object) -> None:
        """``value`` belongs to ``key`` from now on; it is not None."""
        shard = self._shards[hash(key) & self._mask]
        self._count -= len(shard)
        shard[key] = value
        self._count += len(shard)

    def pop(self, key: bytes) -> Any:
        """Take out what belongs to a key; None if nothing did."""
        value = self._shards[hash(key) & self._mask].pop(key, None)
        self._count -= value is not None
        return value
