"""From bytes to what belongs to them, asked with a part of other bytes.

Law: it finds what a dictionary finds. One large dictionary would be built anew every so often while entries come and
go, for tens of milliseconds with 100,000 of them; so where many are expected there are many small ones. Compiled, no
copy is made of what is looked for.
"""

from __future__ import annotations

from typing import Any, Final

#: entries per dictionary, about, when all that are expected are there. A dictionary that outgrows 341 entries takes
#: room for 1,365; so many stay just below it, for 36 bytes each. To build one anew takes some 10 us.
PER_SHARD: Final = 256


class Index:
    """A dictionary with bytes as keys."""

    __slots__ = ("_count", "_shards")

    def __init__(self, expected: int = 0) -> None:
        """``expected`` is about how many entries there may be."""
        self._shards: tuple[dict[bytes, Any], ...] = tuple([{} for _ in range(1 + expected // PER_SHARD)])
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> Any:
        """What belongs to a key, None if nothing does."""
        return self._shards[hash(key) % len(self._shards)].get(key)

    def get_slice(self, raw: bytes, start: int, end: int) -> Any:
        """What belongs to ``raw[start:end]``, None if nothing does. Raises IndexError for what is not in ``raw``."""
        if not 0 <= start <= end <= len(raw):
            raise IndexError("outside the bytes")
        return self.get(raw[start:end])

    def put(self, key: bytes, value: object) -> None:
        """``value`` belongs to ``key`` from now on; it is not None."""
        shard = self._shards[hash(key) % len(self._shards)]
        self._count -= len(shard)
        shard[key] = value
        self._count += len(shard)

    def pop(self, key: bytes) -> Any:
        """Take out what belongs to a key; None if nothing did."""
        value = self._shards[hash(key) % len(self._shards)].pop(key, None)
        self._count -= value is not None
        return value

    def shards(self) -> int:
        """How many dictionaries there are."""
        return len(self._shards)

    def values(self, shard: int) -> list[Any]:
        """What belongs to the keys of one of them. Raises IndexError if there is none of that number.

        A key stays in its dictionary; so who goes through them one by one, while entries come and go, meets each that
        was there all the time just once."""
        if not 0 <= shard < len(self._shards):
            raise IndexError("no such shard")
        return list(self._shards[shard].values())
