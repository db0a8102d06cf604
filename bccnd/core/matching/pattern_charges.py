"""Charges an owner for its patterns: their memory, and the steps that their wildcards can add to a look-up.

A look-up visits the nodes of a pattern tree that its key matches. Without wildcards that is one node per level, as the
key names it. A wildcard adds nodes: its own, and those below. Of these the key still names the exact tokens, and the
prefixes of one length: of ``*/a`` and ``*/b`` it visits one, so they share their places. Behind a step that takes any
number of tokens the key names nothing: a node shares its places only with itself, and has two, as it is reached at
several positions of the key.

Invariant: a look-up takes at most two steps for each wildcard place of the patterns in a tree, and one for each level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from bccnd.core.matching.patterns import EXACT, MANY, Pattern

#: estimated bytes of a subscription besides its text, and of each level of one that is in a tree
SUBSCRIPTION_BYTES: Final = 384
LEVEL_BYTES: Final = 320


def wildcard_places(pattern: Pattern) -> list[bytes]:
    """Return names for the places of the nodes of a pattern at or behind its first wildcard."""
    places: list[bytes] = []
    place, wild, many = b"", False, False
    for kind, token in pattern.steps or ():
        wild, many = wild or kind != EXACT, many or kind == MANY
        place += pattern.separator + (b"%d" % kind if kind != EXACT else b"=" + token if many else b"=")
        if wild:
            places += [place, place + pattern.separator] if many else [place]
    return places


def _bytes_of(pattern: Pattern) -> int:
    """Return the estimated bytes of a subscription; parts shared with others are not subtracted."""
    steps = pattern.steps or ()
    text = sum(len(token) + 1 for _, token in steps)
    return SUBSCRIPTION_BYTES + 2 * text + (0 if pattern.literal else LEVEL_BYTES * len(steps))


class PatternCharges:
    """The patterns of one owner."""

    def __init__(self) -> None:
        self.bytes = 0
        self._places: Counter[bytes] = Counter()

    @property
    def wildcards(self) -> int:
        """The number of different wildcard places."""
        return len(self._places)

    def add(self, pattern: Pattern) -> None:
        self.bytes += _bytes_of(pattern)
        self._places.update(wildcard_places(pattern))

    def remove(self, pattern: Pattern) -> None:
        self.bytes -= _bytes_of(pattern)
        for place in wildcard_places(pattern):
            self._places[place] -= 1
            if not self._places[place]:
                del self._places[place]

    def has_room(self, patterns: Iterable[Pattern], limit: int) -> bool:
        """Whether there are at most so many wildcard places with these patterns, or no more than without them."""
        added = {place for pattern in patterns for place in wildcard_places(pattern)} - self._places.keys()
        return not added or len(self._places) + len(added) <= limit
