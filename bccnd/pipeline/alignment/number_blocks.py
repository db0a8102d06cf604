"""Parts the numbers of a source that never went back into blocks, one for each epoch: a hole of `SANITY` is a jump,
unless it is a loss.

A hole is a loss if receivers were recording for so long that the source can have sent these numbers at its rate, which
is that of its fastest run (`explained_holes`); or if a report says that all of them were broadcast, and receivers were
recording all the while. The last number of a report counts as a number that no receiver got: the hole before it
is judged as any other, but a number that is no loss begins no block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bccnd.core.tracking.explained_holes import is_explained, rate_of_run
from bccnd.core.tracking.reported_loss import MAX_SEQS_A_SECOND
from bccnd.pipeline.records.source_runs import ENDLESS, SANITY, SECOND, SentRange
from bccnd.pipeline.records.time_spans import overlap


class Span(NamedTuple):
    """Numbers that a receiver heard, none apart by `SANITY`, from when to when."""

    low: int
    high: int
    start: int
    end: int


class Block(NamedTuple):
    """The numbers of an epoch within its era: the lowest of them, and when the first of them was heard."""

    low: int
    start: int


class ReportedEnd(NamedTuple):
    """A range of a report whose last number counts as sent in a block: the one with this index."""

    block: int
    sent: SentRange


class Blocks(NamedTuple):
    """The blocks of an era, the lowest first; the first has whatever is lower as well."""

    blocks: list[Block]
    ends: list[ReportedEnd]


def divide(spans: Sequence[Span], sent: Sequence[SentRange], recorded: Sequence[tuple[int, int]]) -> Blocks:
    """Part the spans of an era, with what reports say was ``sent`` in it. ``recorded`` has the times in which any
    receiver was recording, in order and apart from each other."""
    ordered = sorted(spans)
    fastest = max((rate_of_run(span.high - span.low, span.end - span.start) for span in ordered), default=0)
    believed = list(_believed(ordered, sent))

    def is_loss(before: Span, low: int, moment: int) -> bool:
        """Whether the numbers between a span and ``low``, which was heard at a moment, are a loss."""
        if low - before.high < SANITY:
            return True
        meanwhile = overlap(recorded, before.end, moment)
        if is_explained(low - before.high - 1, fastest, meanwhile):
            return True
        whole = meanwhile >= moment - before.end
        return whole and any(report.first <= before.high and low - 1 <= report.last for report in believed)

    blocks: list[Block] = []
    ends: list[ReportedEnd] = []
    reached: Span | None = None
    reports = [(Span(report.last, report.last, report.moment, report.moment), report) for report in believed]
    for span, report in sorted([*((span, None) for span in ordered), *reports], key=lambda pair: pair[0]):
        if report is not None:
            if reached is not None and span.high > reached.high and is_loss(reached, span.low, span.start):
                ends.append(ReportedEnd(len(blocks) - 1, report))
                reached = reached._replace(high=span.high)
            continue
        if reached is None:
            blocks.append(Block(-ENDLESS - 1, span.start))
        elif not is_loss(reached, span.low, span.start):
            blocks.append(Block(span.low, span.start))
        blocks[-1] = blocks[-1]._replace(start=min(blocks[-1].start, span.start))
        if reached is None or span.high > reached.high:
            reached = span
    return Blocks(blocks, ends)


def _believed(spans: Sequence[Span], sent: Sequence[SentRange]) -> Iterator[SentRange]:
    """Yield the ranges of which a number was heard, and whose last number can have been reached since."""
    tops: list[Span] = []
    for span in spans if sent else ():
        if not tops or span.high > tops[-1].high:
            tops.append(span)
    lows = [span.low for span in tops]
    for report in sent:
        place = bisect_right(lows, report.last) - 1
        if place < 0 or tops[place].high < report.first:
            continue
        silence = max(report.moment - tops[place].end, 0)
        if (report.last - tops[place].high) * SECOND <= MAX_SEQS_A_SECOND * (SECOND + silence):
            yield report
