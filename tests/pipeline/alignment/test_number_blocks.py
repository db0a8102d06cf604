"""Which holes are losses and which are jumps, and what of reports counts as sent: a few spans each."""

from __future__ import annotations

import pytest

from bccnd.pipeline.alignment.number_blocks import Span, divide
from bccnd.pipeline.records.source_runs import ENDLESS, SECOND, SentRange

ALWAYS = ((-ENDLESS, ENDLESS),)
#: ten numbers in ten seconds
SEEN = Span(0, 10, 0, 10 * SECOND)


def report(first: int, last: int, at: float) -> SentRange:
    moment = round(at * SECOND)
    return SentRange("2026-03-01", first, last, moment, moment)


def blocks(
    spans: list[Span], reports: list[SentRange], recorded: tuple[tuple[int, int], ...] = ALWAYS
) -> tuple[list[int], list[tuple[int, int]]]:
    """The lowest number of each block behind the first, and the last numbers of reports that count, with the block."""
    divided = divide(spans, reports, recorded)
    return [block.low for block in divided.blocks[1:]], [(end.block, end.sent.last) for end in divided.ends]


#: a hole of 5000 numbers within ten seconds, which that rate does not explain
LATER = Span(5011, 5020, 20 * SECOND, 30 * SECOND)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([], ([5011], [])),
        ([report(0, 5015, 25)], ([], [])),
        ([report(0, 5010, 19)], ([], [(0, 5010)])),
        # a part of the hole: the rest is as short as any loss
        ([report(0, 4000, 19)], ([], [(0, 4000)])),
        # or it is not
        ([report(0, 3000, 19)], ([5011], [(0, 3000)])),
        # the run of the report begins in the hole, or behind it
        ([report(11, 5015, 25)], ([5011], [])),
        ([report(5011, 5015, 25)], ([5011], [])),
        # nobody has heard of that run
        ([report(100, 200, 25)], ([5011], [])),
        # more than any source can have sent
        ([report(0, 10**9, 25)], ([5011], [])),
        ([report(0, 10**9, 25), report(0, 5015, 25)], ([], [])),
        # tails, short and long, of the last block
        ([report(5000, 5021, 31)], ([5011], [(1, 5021)])),
        ([report(0, 900_000, 40)], ([], [(0, 900_000)])),
        ([report(5000, 900_000, 40), report(5000, 10**12, 40)], ([5011], [(1, 900_000)])),
        ([report(5000, 5020, 31)], ([5011], [])),
    ],
)
def test_reports_explain_holes_and_tails(
    reports: list[SentRange], expected: tuple[list[int], list[tuple[int, int]]]
) -> None:
    assert blocks([SEEN, LATER], reports) == expected
    assert blocks([LATER, SEEN], reports[::-1]) == expected


def test_what_was_not_recorded_is_no_loss() -> None:
    """As without reports: a long hole is one only if receivers were recording all the while."""
    off = ((0, 12 * SECOND), (18 * SECOND, 60 * SECOND))
    assert blocks([SEEN, LATER], [report(0, 5015, 25)], off) == ([5011], [])
    assert blocks([SEEN], [report(0, 5015, 25)], off) == ([], [])
    assert blocks([SEEN], [report(0, 500, 25)], off) == ([], [(0, 500)])


def test_where_nothing_was_heard_there_is_nothing() -> None:
    assert blocks([], [report(0, 5, 1)]) == ([], [])
