"""Patterns that choose channels of a journal: those of the dialect ``path``, by their number."""

from __future__ import annotations

from collections.abc import Iterable

from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS


class ChannelPatterns:
    """Channels that begin with ``!`` match only patterns that do, and the empty one, which matches every channel."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._trees = PatternTree[int](DIALECTS["path"]), PatternTree[int](DIALECTS["path"])
        for number, pattern in enumerate(patterns):
            text = pattern.encode("utf-8", "surrogateescape")
            for is_marked, tree in enumerate(self._trees):
                if not text or text.startswith(b"!") == bool(is_marked):
                    tree.add(tree.compile(text), number)

    def match(self, channel: str) -> list[int]:
        """Return the numbers of the patterns that match a channel."""
        return list(self._trees[channel.startswith("!")].match(channel.encode()))
