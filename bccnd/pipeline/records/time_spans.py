"""Stretches of time: pairs of a begin and an end, which is no more part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same times, in order and without overlaps."""
    apart: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if apart and begin <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((begin, end))
    return apart


def overlap(spans: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """How much of the time between two moments is in spans that are in order and apart from each other."""
    total = 0
    for begins, ends in spans[max(bisect_right(spans, (start, start)) - 1, 0) :]:
        if begins >= end:
            break
        total += max(min(ends, end) - max(begins, start), 0)
    return total
