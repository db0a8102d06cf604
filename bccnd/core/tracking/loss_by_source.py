"""The sources that have lost most."""

from __future__ import annotations

from heapq import nlargest
from operator import itemgetter
from typing import Final

#: sources kept; up to twice as many until those with the smallest losses are removed
MAX_LOST_BY_SOURCE: Final = 256


class LossBySource:
    """Messages lost, by src; those of sources that have lost least are forgotten."""

    def __init__(self) -> None:
        self.by_src: dict[bytes, int] = {}

    def add(self, src: bytes, gone: int) -> None:
        lost = self.by_src
        lost[src] = lost.get(src, 0) + gone
        if len(lost) > 2 * MAX_LOST_BY_SOURCE:
            self.by_src = dict(nlargest(MAX_LOST_BY_SOURCE, lost.items(), key=itemgetter(1)))
