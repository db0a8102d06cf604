"""What has been dropped since that was last told of, in one line.

Law: pure: counts come in, by name, and what they have grown by goes out. A count that is less than it was has begun
anew. Where several families have one name, the line says which is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: seconds between two lines about all that was dropped
TALLY: Final = 3600.0
#: a family, a name, and a count; of a name that is a family, both are the same
Row = tuple[str, str, int]


class DropSummary:
    """Counts as they were when they were last told of. A family may stand in several rows of one name: they count
    together."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], int] = {}

    def grown(self, counts: Iterable[Row]) -> list[Row]:
        """By how much each has grown, without those that have not; from now on they are told of."""
        now: dict[tuple[str, str], int] = {}
        for family, name, count in counts:
            now[family, name] = now.get((family, name), 0) + count
        told, self._told = self._told, now
        grown = []
        for (family, name), count in now.items():
            before = told.get((family, name), 0)
            if count != before:
                grown.append((family, name, count - before if count > before else count))
        return [row for row in grown if row[2]]


def in_words(rows: Iterable[Row]) -> str:
    """For people: ``datagrams: looped 5,210, duplicate 31; copies_dropped 2``; families in the order of the rows, the
    most frequent names first. A family without a name is not named."""
    families: dict[str, list[tuple[int, str]]] = {}
    for family, name, count in rows:
        families.setdefault(family, []).append((-count, name))
    parts = []
    for family, found in families.items():
        text = ", ".join(f"{name} {-count:,}" for count, name in sorted(found))
        alone = family in ("", found[0][1])
        parts.append(text if alone else f"{family}: {text}")
    return "; ".join(parts)


def in_fields(rows: Iterable[Row]) -> str:
    """For programs: ``datagrams/looped=5210 copies_dropped=2``."""
    return " ".join(f"{name if family in ('', name) else f'{family}/{name}'}={count}" for family, name, count in rows)
