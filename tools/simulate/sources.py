"""A model of deduplication, written from the protocol: must a datagram be delivered, may it, or must it not.

It says nothing where the rules leave a choice; from then on it follows the daemon's own tracker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bccnd.core.tracking.source import Source

MUST: Final = "must"
MAY: Final = "may"
NOT: Final = "not"
#: seconds around a limit within which either is right
_MARGIN: Final = 0.3
#: bounds of seqs that are clocks in microseconds
_CLOCK: Final = range(10**15, 4 * 10**15)


@dataclass(frozen=True)
class Rules:
    """Those of the fleet's configuration; ``linked`` is whether copies may come by links."""

    sanity: int
    horizon: float
    deliver_late: bool
    linked: bool


@dataclass
class SourceModel:
    """What a host should know of one source."""

    rules: Rules
    first: int = 0
    last: int = 0
    seen: set[int] = field(default_factory=set)
    heard: float = 0.0
    known: bool = False
    #: whether the rules have left a choice since the last `follow`
    unsure: bool = False

    def __str__(self) -> str:
        return f"{self.first} to {self.last}, last received at {self.heard:.3f}"

    def judge(self, seq: int, when: float, *, from_link: bool = False) -> str:
        """Return what becomes of a datagram that arrived at a time, and change accordingly."""
        outcome = self._judge(seq, when, from_link)
        if outcome == MAY:
            self.unsure = True
            self.heard = max(self.heard, when)
        return outcome

    def _judge(self, seq: int, when: float, from_link: bool) -> str:
        rules = self.rules
        if self.unsure:
            return MAY
        if not self.known:
            self.known = True
            self._begin(seq, when)
            return MUST
        step = seq - self.last
        if step > 0:
            if from_link and step >= rules.sanity:
                return MAY
            if step >= rules.sanity:
                self._begin(seq, when)
            else:
                self.last = seq
                self._see(seq, when)
            return MUST
        idle = when - self.heard
        careful = from_link or (rules.linked and seq in _CLOCK and self.last in _CLOCK)
        if not careful and (idle > rules.horizon + _MARGIN or -step >= rules.sanity):
            self._begin(seq, when)
            return MUST
        if idle > rules.horizon - _MARGIN or -step >= rules.sanity or idle < -_MARGIN:
            return NOT if seq in self.seen and idle <= rules.horizon - _MARGIN and -step < rules.sanity else MAY
        if seq in self.seen or not rules.deliver_late:
            self.seen.add(seq)
            self.first = min(self.first, seq)
            return NOT
        self.first = min(self.first, seq)
        self._see(seq, when)
        return MUST

    def _begin(self, seq: int, when: float) -> None:
        self.first = self.last = seq
        self.seen = set()
        self._see(seq, when)

    def _see(self, seq: int, when: float) -> None:
        self.seen.add(seq)
        self.heard = max(self.heard, when)
        if len(self.seen) > 2 * self.rules.sanity:
            self.seen = {one for one in self.seen if self.last - one < self.rules.sanity}

    def follow(self, source: Source | None) -> None:
        """Take over what the daemon knows, where the rules have left a choice."""
        self.unsure = False
        self.known = source is not None
        if source is not None:
            self.first, self.last, self.heard = source.first, source.last, source.heard
            lowest = max(self.first, self.last - self.rules.sanity + 1)
            absent = source.absent
            self.seen = {seq for seq in range(lowest, self.last + 1) if not absent >> (self.last - seq) & 1}
