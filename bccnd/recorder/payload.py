"""Which payloads are recorded.

Invariant: the first rule that fits a channel decides; without one its payload is recorded. A payload that must not be
kept is not in the log either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from bccnd.core.formats.tap_record import Observation
from bccnd.journal.channel_patterns import ChannelPatterns
from bccnd.journal.file_names import HASHED

Keep = Literal["record", "hash", "omit"]
#: channels whose rule is cached
_CACHED: Final = 4096


class Payloads:
    """Rules: pairs of a pattern (empty for everything) and what to do with the payloads of its channels."""

    def __init__(self, rules: Sequence[tuple[str, Keep]] = ()) -> None:
        self._keeps: list[Keep] = [keep for _, keep in rules]
        #: whether payloads are kept whatever the channel
        self.everything = all(keep == "record" for keep in self._keeps)
        self._patterns = ChannelPatterns(pattern for pattern, _ in rules)
        self.keep = lru_cache(_CACHED)(self._find)

    def _find(self, channel: str) -> Keep:
        rules = self._patterns.match(channel)
        return self._keeps[min(rules)] if rules else "record"

    def apply(self, row: Observation) -> Observation:
        """Return a row with no more of its payload than is to be kept."""
        if row.payload is None or row.chan is None:
            return row
        keep = self.keep(row.chan)
        if keep == "record":
            return row
        digest = HASHED + hashlib.sha256(row.payload).digest() if keep == "hash" else None
        return row._replace(payload=digest)
