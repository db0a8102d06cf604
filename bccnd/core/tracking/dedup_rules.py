"""What the trackers need of the configuration, and its defaults."""

from __future__ import annotations

from typing import Final, Protocol

from bccnd.core.wire.verdicts import REORDERED, STALE

#: defaults of the rules
SANITY: Final = 1024
HORIZON: Final = 2.0
EXPIRE: Final = 86_400.0
#: 100,000 trackers take some 55 MB at most
MAX_SOURCES: Final = 100_000
#: heartbeat intervals without a sign of life, and a half, after which a source is dead
DEAD_AFTER: Final = 3


class DedupRules(Protocol):
    """What the trackers need of the configuration (section ``dedup``); times in seconds."""

    @property
    def sanity(self) -> int: ...
    @property
    def horizon(self) -> float: ...
    @property
    def late(self) -> str: ...
    @property
    def freshness(self) -> str: ...
    @property
    def expire(self) -> float: ...
    @property
    def max_sources(self) -> int: ...
    @property
    def linked(self) -> bool: ...


class Horizon(Protocol):
    """What is needed by parts that only know how late a copy can be, in seconds."""

    @property
    def horizon(self) -> float: ...


class TrackerLimits:
    """The section ``dedup`` as compiled code reads it. The trackers have the only one; other parts read theirs."""

    def __init__(self, rules: DedupRules) -> None:
        self.refresh(rules)

    def refresh(self, rules: DedupRules) -> None:
        """Take over the rules that are in force now."""
        self.sanity = rules.sanity
        #: the bits of a window
        self.mask = (1 << rules.sanity) - 1
        self.horizon = rules.horizon
        self.horizon_ns = int(rules.horizon * 1e9)
        #: the verdict on a late datagram
        self.late = REORDERED if rules.late == "deliver" else STALE
        self.monotonic = rules.freshness == "monotonic"
        self.expire = rules.expire
        self.max_sources = rules.max_sources
        self.linked = rules.linked
