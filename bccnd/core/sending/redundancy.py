"""Sends the datagrams of configured channels several times.

Invariant: all copies are equal, so that receivers drop them as duplicates. Pending copies are capped. A copy after the
horizon would count as a new message and is not sent. Source: BCCN, LOSS REDUCTION.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import Dialect
from bccnd.core.tracking.tracker_limits import TrackerLimits

#: pending copies: at most 23 MB
MAX_WAITING: Final = 16_384


@dataclass(frozen=True)
class RepeatRule:
    """``channels`` is a pattern; ``copies`` counts the first one too; ``spacing`` in seconds."""

    channels: bytes
    copies: int
    spacing: float


class RepeatRules:
    """Rules with compiled patterns; the first one that matches a channel decides."""

    def __init__(self, rules: Sequence[RepeatRule], dialect: Dialect) -> None:
        self._rules = tuple(rules)
        self._tree: PatternTree[int] = PatternTree(dialect)
        for number, rule in enumerate(rules):
            self._tree.add(self._tree.compile(rule.channels), number)

    def __len__(self) -> int:
        return len(self._rules)

    def find(self, chan: bytes) -> RepeatRule | None:
        """Return the rule for a channel, if there is one."""
        found = self._tree.match(chan) if self._rules else None
        return self._rules[min(found)] if found else None


class _Copies(NamedTuple):
    """Pending copies of a datagram; ``due`` is when the next is sent, ``number`` keeps the order, ``since`` is when the
    first was sent."""

    due: float
    number: int
    datagram: bytes
    spacing: float
    left: int
    since: float


class Repeater:
    """Schedules copies by ``rules``, which can be replaced: pending copies are still sent. ``dropped`` counts those not
    sent because there were too many or the horizon had passed."""

    def __init__(self, rules: RepeatRules, limits: TrackerLimits) -> None:
        self.rules = rules
        self._limits = limits
        self._waiting: list[_Copies] = []
        self._number = 0
        self.dropped = 0

    def add(self, chan: bytes, datagram: bytes, now: float) -> bool:
        """Schedule the copies of a datagram just sent, by the first rule that matches; False if none does."""
        rule = self.rules.find(chan)
        if rule is None:
            return False
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
        """When `due` should be called next; None if nothing is pending."""
        return self._waiting[0].due if self._waiting else None

    def due(self, now: float) -> list[bytes]:
        """Return the copies to send by now, in order."""
        found: list[bytes] = []
        while self._waiting and self._waiting[0].due <= now:
            copies = heappop(self._waiting)
            if now > copies.since + self._limits.horizon:
                self.dropped += copies.left
                continue
            found.append(copies.datagram)
            if copies.left > 1:
                # Counted from now: copies sent at once after a pause would be lost at once.
                due = max(copies.due, now) + copies.spacing
                self._wait(copies._replace(due=due, left=copies.left - 1))
        return found

    def waiting(self) -> list[tuple[float, bytes, float, int, float]]:
        """Return the pending copies in order, for the next daemon."""
        return [(one.due, one.datagram, one.spacing, one.left, one.since) for one in sorted(self._waiting)]

    def resume(self, rows: Iterable[tuple[float, bytes, float, int, float]]) -> None:
        """Continue with the pending copies of the daemon before."""
        for due, datagram, spacing, left, since in rows:
            self._wait(_Copies(due, 0, datagram, spacing, left, since))

    def rest(self) -> list[bytes]:
        """Remove and return all pending copies, for a shutdown."""
        waiting, self._waiting = sorted(self._waiting), []
        return [copies.datagram for copies in waiting for _ in range(copies.left)]
