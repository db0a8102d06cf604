"""Sending what matters more than once: which channels, how many copies, and when the next one is due.

Law: all copies are one datagram, byte for byte, so that whoever hears several hears one message; nothing waits for a
copy, and the copies that wait are capped. Source: BCCN, LOSS REDUCTION.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from bccnd.core.patterns import Dialect
from bccnd.core.routes import PatternTree

#: copies that wait: at most 23 MB
MAX_WAITING: Final = 16_384


@dataclass(frozen=True)
class RepeatRule:
    """``channels`` is a pattern; ``copies`` counts the first one too; ``spacing`` in seconds."""

    channels: bytes
    copies: int
    spacing: float


class Repeater:
    """Remembers what is to be sent again. ``dropped`` counts copies for which there was no room."""

    def __init__(self, rules: Sequence[RepeatRule], dialect: Dialect) -> None:
        self._waiting: list[tuple[float, int, bytes, float, int]] = []
        self._number = 0
        self.dropped = 0
        self.configure(rules, dialect)

    def configure(self, rules: Sequence[RepeatRule], dialect: Dialect) -> None:
        """Put other rules in force; copies that wait already are sent all the same."""
        self._rules = tuple(rules)
        self._tree: PatternTree[int] = PatternTree(dialect)
        for number, rule in enumerate(rules):
            self._tree.add(self._tree.compile(rule.channels), number)

    def add(self, chan: bytes, datagram: bytes, now: float) -> bool:
        """A datagram was sent for the first time; whether a rule fits its channel, the first of which says what is to
        follow."""
        found = self._tree.match(chan) if self._rules else None
        if not found:
            return False
        rule = self._rules[min(found)]
        self._wait(now + rule.spacing, datagram, rule.spacing, rule.copies - 1)
        return True

    def _wait(self, when: float, datagram: bytes, spacing: float, left: int) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += left
        else:
            self._number += 1
            heappush(self._waiting, (when, self._number, datagram, spacing, left))

    @property
    def next_due(self) -> float | None:
        """When `due` should be called next; None when nothing waits."""
        return self._waiting[0][0] if self._waiting else None

    def due(self, now: float) -> list[bytes]:
        """The copies to be sent by now, in order."""
        copies: list[bytes] = []
        while self._waiting and self._waiting[0][0] <= now:
            when, _, datagram, spacing, left = heappop(self._waiting)
            copies.append(datagram)
            if left > 1:
                # Counted from now: after a pause of ours, copies sent all at once would be lost all at once.
                self._wait(max(when, now) + spacing, datagram, spacing, left - 1)
        return copies
