"""Sending what matters more than once: which channels, how many copies, and when the next one is due.

Law: all copies are one datagram, byte for byte, so that whoever hears several hears one message; nothing waits for a
copy, and the copies that wait are capped. A copy that comes after the horizon would be taken for a new message, and is
not sent. Source: BCCN, LOSS REDUCTION.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from bccnd.core.pattern_tree import PatternTree
from bccnd.core.patterns import Dialect

#: copies that wait: at most 23 MB
MAX_WAITING: Final = 16_384


@dataclass(frozen=True)
class RepeatRule:
    """``channels`` is a pattern; ``copies`` counts the first one too; ``spacing`` in seconds."""

    channels: bytes
    copies: int
    spacing: float


class _Copies(NamedTuple):
    """Copies that wait, by when the next of them is due; ``number`` keeps their order, ``since`` is when the first one
    was sent."""

    due: float
    number: int
    datagram: bytes
    spacing: float
    left: int
    since: float


class Repeater:
    """Remembers what is to be sent again. ``dropped`` counts copies that were not sent: for want of room, or because
    ``horizon`` seconds had passed since the first."""

    def __init__(self, rules: Sequence[RepeatRule], dialect: Dialect, horizon: float) -> None:
        self._waiting: list[_Copies] = []
        self._number = 0
        self.dropped = 0
        self.configure(rules, dialect, horizon)

    def configure(self, rules: Sequence[RepeatRule], dialect: Dialect, horizon: float) -> None:
        """Put other rules in force; copies that wait already are sent all the same."""
        self._horizon = horizon
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
        self._wait(_Copies(now + rule.spacing, 0, datagram, rule.spacing, rule.copies - 1, now))
        return True

    def _wait(self, copies: _Copies) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += copies.left
        else:
            self._number += 1
            heappush(self._waiting, copies._replace(number=self._number))

    @property
    def next_due(self) -> float | None:
        """When `due` should be called next; None when nothing waits."""
        return self._waiting[0].due if self._waiting else None

    def due(self, now: float) -> list[bytes]:
        """The copies to be sent by now, in order."""
        found: list[bytes] = []
        while self._waiting and self._waiting[0].due <= now:
            copies = heappop(self._waiting)
            if now > copies.since + self._horizon:
                self.dropped += copies.left
                continue
            found.append(copies.datagram)
            if copies.left > 1:
                # Counted from now: after a pause of ours, copies sent all at once would be lost all at once.
                due = max(copies.due, now) + copies.spacing
                self._wait(copies._replace(due=due, left=copies.left - 1))
        return found

    def rest(self) -> list[bytes]:
        """All copies that wait, for when there is no time left to wait; none waits after that."""
        waiting, self._waiting = sorted(self._waiting), []
        return [copies.datagram for copies in waiting for _ in range(copies.left)]
