"""Which payloads are recorded.

Invariant: the first rule that fits a channel decides; without one its payload is recorded. Patterns are of the dialect
``path``; channels that begin with ``!`` fit only patterns that do, and rules for everything. A payload that must not be
kept is not in the log either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal

from bccnd.core.pattern_tree import PatternTree
from bccnd.core.patterns import DIALECTS
from bccnd.core.tap_record import Observation

Keep = Literal["record", "hash", "omit"]
#: before the 32 bytes of a hash
HASHED: Final = b"sha256:"
#: channels whose answer is remembered
_REMEMBERED: Final = 4096


class Payloads:
    """Rules: pairs of a pattern (empty for everything) and what to do with the payloads of its channels."""

    def __init__(self, rules: Sequence[tuple[str, Keep]] = ()) -> None:
        self._keeps: list[Keep] = [keep for _, keep in rules]
        #: whether payloads are kept whatever the channel
        self.everything = all(keep == "record" for keep in self._keeps)
        self._trees: tuple[PatternTree[int], PatternTree[int]] = (
            PatternTree(DIALECTS["path"]),
            PatternTree(DIALECTS["path"]),
        )
        for number, (pattern, _) in enumerate(rules):
            text = pattern.encode()
            for marked, tree in enumerate(self._trees):
                if not text or text.startswith(b"!") == bool(marked):
                    tree.add(tree.compile(text), number)
        self._known: dict[str, Keep] = {}

    def keep(self, channel: str) -> Keep:
        known = self._known.get(channel)
        if known is None:
            found = self._trees[channel.startswith("!")].match(channel.encode())
            known = self._keeps[min(found)] if found else "record"
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[channel] = known
        return known

    def apply(self, row: Observation) -> Observation:
        """A row with no more of its payload than is to be kept."""
        if row.payload is None or row.chan is None:
            return row
        keep = self.keep(row.chan)
        if keep == "record":
            return row
        digest = HASHED + hashlib.sha256(row.payload).digest() if keep == "hash" else None
        return row._replace(payload=digest)
