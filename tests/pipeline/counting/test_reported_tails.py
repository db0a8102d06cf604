"""Tails of epochs: which numbers of reports are one, and what they add to the tables; a few runs and tails each."""

from __future__ import annotations

import pytest

from bccnd.pipeline.alignment.epoch_alignment import align
from bccnd.pipeline.counting.reported_tails import tail_records, with_tails
from bccnd.pipeline.hosts.receiving_hosts import Interval, Receivers
from bccnd.pipeline.records.source_runs import SECOND, Carried, Run, SentRange, Tail

#: microseconds of a day, and two days
DAY = 86_400 * SECOND
FIRST, SECOND_DAY = "1970-01-01", "1970-01-02"
DAYS = (FIRST, SECOND_DAY)


def run(day: int, low: int, high: int, start: float, end: float, *, host: str = "h1", epoch: int = 1) -> Run:
    """A run of a day, between two seconds of it."""
    times = day * DAY + round(start * SECOND), day * DAY + round(end * SECOND)
    return Run(DAYS[day], host, "j1", epoch, times[0], times[1], *times, low, high, low, high, False, False)


def report(day: int, first: int, last: int, at: float) -> SentRange:
    moment = day * DAY + round(at * SECOND)
    return SentRange(DAYS[day], first, last, moment, moment)


def tails(runs: list[Run], reports: list[SentRange], carried: Carried | None = None) -> list[tuple[str, int, int]]:
    return [tail[:3] for tail in align(runs, sent=reports, carried=carried).tails]


NOON = run(0, 0, 100, 10, 110)


@pytest.mark.parametrize(
    ("runs", "reports", "expected"),
    [
        ([NOON], [report(0, 0, 150, 120)], [(FIRST, 10, 150)]),
        ([NOON], [report(0, 0, 150, 120), report(0, 0, 150, 130), report(0, 0, 120, 125)], [(FIRST, 10, 150)]),
        # it was received, at any receiver, or something behind it
        ([NOON], [report(0, 0, 100, 120)], []),
        ([NOON, run(0, 160, 160, 200, 200)], [report(0, 0, 150, 120)], []),
        ([NOON, run(0, 150, 150, 119, 119, host="h2")], [report(0, 0, 150, 120)], []),
        # what comes on another day follows it
        ([NOON, run(1, 160, 170, 20, 30)], [report(0, 0, 150, 120)], [(FIRST, 10, 150)]),
        # the next day says it again, or more
        ([NOON], [report(0, 0, 150, 120), report(1, 0, 150, 10)], [(FIRST, 10, 150)]),
        ([NOON], [report(0, 0, 150, 120), report(1, 0, 160, 10)], [(FIRST, 10, 150), (SECOND_DAY, 10, 160)]),
        ([NOON], [report(1, 0, 150, 10)], [(SECOND_DAY, 10, 150)]),
        # two epochs of a day
        (
            [NOON, run(0, 10**8, 10**8 + 9, 200, 209, epoch=2)],
            [report(0, 0, 150, 120), report(0, 10**8, 10**8 + 10, 220)],
            [(FIRST, 10, 150), (FIRST, 200, 10**8 + 10)],
        ),
        # a run that went back: a report is about the one in which it came
        ([NOON, run(0, 0, 50, 200, 250, epoch=2)], [report(0, 0, 150, 120)], [(FIRST, 10, 150)]),
        ([NOON, run(0, 0, 50, 200, 250, epoch=2)], [report(0, 0, 60, 260)], [(FIRST, 200, 60)]),
    ],
)
def test_a_tail_is_behind_all_that_came_on_its_day(
    runs: list[Run], reports: list[SentRange], expected: list[tuple[str, int, int]]
) -> None:
    assert tails(runs, reports) == expected
    assert tails(runs[::-1], reports[::-1]) == expected


def test_marks_of_a_day_change_with_its_tails_and_only_then() -> None:
    without, with_report, another_day = (
        align([NOON], sent=sent).marks for sent in ([], [report(0, 0, 99, 120)], [report(1, 0, 105, 9)])
    )
    assert without == with_report
    assert another_day[FIRST] == without[FIRST]
    assert SECOND_DAY in another_day
    assert align([NOON], sent=[report(0, 0, 105, 120)]).marks[FIRST] != without[FIRST]


def test_days_that_are_only_carried_count_as_if_they_were_here() -> None:
    """Numbers go on from the tail that was counted on a day before, or a report of the same run explains them."""
    carried = Carried(10, "h1", "j1", 1, 110 * SECOND, 150, 100, 100 * SECOND, None)
    for later, explained in ((run(1, 160, 170, 20, 30), True), (run(1, 10**9, 10**9 + 9, 20, 30), False)):
        reports = [report(0, 0, 150, 120)]
        full = align([NOON, later], sent=reports)
        again = align([later], carried=carried)
        assert len(full.epochs) == len(again.epochs) == (1 if explained else 2)
    later = run(1, 9_000_000, 9_000_009, 20, 30)
    whole = report(1, 0, 9_000_011, 40)
    assert len(align([later], carried=carried).epochs) == 2
    assert tails([later], [whole], carried) == tails([NOON, later], [whole]) == [(SECOND_DAY, 10, 9_000_011)]
    # nothing of it was received again
    assert tails([], [report(1, 0, 160, 40)], carried) == [(SECOND_DAY, 10, 160)]


SRC = "h1/p/1"
TAIL = Tail(FIRST, 10, 150, 120 * SECOND, 119 * SECOND)
AUDIENCE = Receivers(
    {FIRST: [Interval(0, 119 * SECOND, frozenset({"h1"})), Interval(119 * SECOND, DAY, frozenset({"h1", "h2", "h3"}))]},
    {FIRST: frozenset({"h1", "h2", "h4"})},
    {},
)


def test_what_is_lost_of_a_tail_counts_for_those_who_listened() -> None:
    records = tail_records({SRC: [TAIL]}, {(SRC, 10, 150): 140}, {}, AUDIENCE)
    losses = [(record["host"], record["minute"], record["lost_everywhere"]) for record in records["link"]]
    assert losses == [("h1", 2, 10), ("h2", 2, 10)]
    assert [(record["lo_key"], record["hi_key"], record["host"]) for record in records["missed"]] == [(141, 150, None)]
    assert [(record["day"], record["epoch"], record["hi_key"], record["to_ts"]) for record in records["epoch"]] == [
        (FIRST, 10, 150, None)
    ]


@pytest.mark.parametrize(
    ("floor", "reached", "lost"), [(140, 145, 5), (None, 145, 5), (140, None, 10), (140, 150, 0), (150, None, 0)]
)
def test_what_was_received_or_counted_before_is_not_counted_again(
    floor: int | None, reached: int | None, lost: int
) -> None:
    floors = {} if floor is None else {(SRC, 10, 150): floor}
    before = {} if reached is None else {(SRC, 10): {FIRST: reached}}
    records = tail_records({SRC: [TAIL]}, floors, before, AUDIENCE)
    assert [record["lost_everywhere"] for record in records["link"]] == ([lost] * 2 if lost else [])
    assert len(records["epoch"]) == 1


def test_the_days_behind_a_tail_go_on_from_it() -> None:
    reached = {(SRC, 10): {SECOND_DAY: 170}, ("other", 3): {FIRST: 5}}
    days = [FIRST, SECOND_DAY, "1970-01-03"]
    assert with_tails(reached, {SRC: [TAIL]}, days) == {
        (SRC, 10): {SECOND_DAY: 170, "1970-01-03": 150},
        ("other", 3): {FIRST: 5},
    }
