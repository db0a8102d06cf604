"""The configuration that the trackers read, and its defaults."""

from __future__ import annotations

from typing import Final, Protocol

#: defaults of the rules
SANITY: Final = 1024
HORIZON: Final = 2.0
EXPIRE: Final = 86_400.0
#: 100,000 trackers take some 55 MB at most
MAX_SOURCES: Final = 100_000
#: heartbeat intervals without a sign of life, and a half, after which a source is dead
DEAD_AFTER: Final = 3


class DedupRules(Protocol):
    """The section ``dedup`` of the configuration; times in seconds."""

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
