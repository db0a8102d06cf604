"""Which days are due: those that files touch or leave; what retention takes is remembered, and changes nothing."""

from __future__ import annotations

import datetime

import pytest

from bccnd.pipeline.inputs.input_history import (
    Used,
    changed,
    days_between,
    find_due,
    first_open_day,
    remember,
)
from bccnd.pipeline.inputs.journal_listing import ListedFile
from bccnd.pipeline.inputs.sessions import JournalSession, from_table, to_table

MARGIN = 600_000_000


def moment(text: str) -> int:
    return int(datetime.datetime.fromisoformat(f"2026-03-{text}+00:00").timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("low", "high", "days"),
    [
        ("02T08:00:00", "02T09:00:00", ["02"]),
        ("02T00:09:59", "02T09:00:00", ["01", "02"]),
        ("02T00:10:00", "02T23:49:59", ["02"]),
        ("02T00:10:00", "02T23:50:00", ["02", "03"]),
        ("01T12:00:00", "03T12:00:00", ["01", "02", "03"]),
    ],
)
def test_rows_near_to_midnight_touch_two_days(low: str, high: str, days: list[str]) -> None:
    assert days_between(moment(low), moment(high), MARGIN) == {f"2026-03-{day}" for day in days}


def test_sessions_touch_the_days_in_which_they_differ() -> None:
    early = JournalSession("h", "j", moment("01T12:00:00"), moment("02T12:00:00"))
    late = JournalSession("h", "j", moment("04T12:00:00"), moment("04T13:00:00"))
    before = [early, late]

    def days(old: list[JournalSession], new: list[JournalSession], ahead: int = 0) -> set[str]:
        return {day[-2:] for day in changed(old, new, lambda _session, _time: ahead)}

    assert days(before, before) == set()
    # one that goes on touches only what is new of it
    assert days(before, [early._replace(end_us=moment("03T12:00:00")), late]) == {"02", "03"}
    assert days(before, [early]) == {"04"}
    assert days([], before) == {"01", "02", "04"}
    # by the corrected clock
    assert days(before, [early], 86_400_000_000) == {"03"}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([(0, 10), (20, 30)], [(0, 10), (20, 30)]),
        ([(5, 10), (20, 30)], [(0, 10), (20, 30)]),
        ([(5, 10), (20, 40), (50, 60)], [(0, 10), (20, 40), (50, 60)]),
        ([(25, 30)], [(0, 10), (20, 30)]),
        ([(25, 45)], [(0, 10), (20, 45)]),
        # nothing tells of 30 to 35: what was recorded then went before it was seen
        ([(35, 45)], [(0, 10), (20, 30), (35, 45)]),
        ([(35, 35)], [(0, 10), (20, 30), (35, 35)]),
        ([], [(0, 10), (20, 30)]),
        # only the front goes by retention; the rest is what the journal says
        ([(0, 10)], [(0, 10)]),
        ([(5, 10), (22, 30)], [(0, 10), (22, 30)]),
    ],
)
def test_sessions_that_retention_has_taken_are_remembered(
    after: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    def of(journal: str, spans: list[tuple[int, int]]) -> list[JournalSession]:
        return [JournalSession("h", journal, start, end) for start, end in spans]

    before = of("a", [(0, 10), (20, 30)])
    remembered = remember(before, [*of("b", [(1, 2)]), *of("a", after)])
    assert remembered == [*of("a", expected), *of("b", [(1, 2)])]
    assert remember(remembered, [*of("a", after), *of("b", [(1, 2)])]) == remembered
    assert from_table(to_table(remembered)) == remembered


@pytest.mark.parametrize(
    ("days", "seconds", "now", "expected"),
    [
        (["2026-03-01", "2026-03-09"], 7 * 86_400, "09", "2026-03-02"),
        (["2026-03-01", "2026-03-09"], 1.5 * 86_400, "20", "2026-03-07"),
        # a clock that is ahead
        (["2026-03-01", "2027-03-09"], 86_400, "05", "2026-03-04"),
        (["2026-03-01", "2026-03-09"], 0.0, "09", ""),
        ([], 7 * 86_400, "09", ""),
    ],
)
def test_days_are_final_so_long_before_the_newest(days: list[str], seconds: float, now: str, expected: str) -> None:
    assert first_open_day(days, seconds, moment(f"{now}T01:00:00") / 1e6) == expected


def used(name: str, low: str, high: str = "", written: int = 1) -> Used:
    return Used(ListedFile(name, 9, written, ""), moment(low), moment(high or low))


A, B, C = used("a", "01T12:00:00"), used("b", "02T23:55:00"), used("c", "03T12:00:00")
#: what the tables of days were made of, by the names in a text: ``01 a; 02 b; 03 bc``
FULL = "01 a; 02 b; 03 bc"
#: recorded, usable files, names in the journal, days asked for, first open day -> due, left, late
HISTORIES = {
    "nothing new": (FULL, [A, B, C], "abc", "", "", "", "", ""),
    "the first run": ("", [A, B, C], "abc", "", "", "01 02 03", "", ""),
    "a new file, near to midnight": ("01 a; 03 c", [A, B, C], "abc", "", "", "02 03", "", ""),
    "one that was written again": (FULL, [A, B, used("c", "03T12:00:00", written=2)], "abc", "", "", "03", "", ""),
    "one whose clock is known better": (FULL, [A, B, used("c", "04T12:00:00")], "abc", "", "", "03 04", "", ""),
    "one that cannot be used any more": (FULL, [A, B], "abc", "", "", "03", "", ""),
    "retention": (FULL, [C], "c", "", "", "", "", ""),
    "a new file for a day of which records are gone": (FULL, [used("d", "02T12:00:00"), C], "cd", "", "", "", "02", ""),
    "a day that is asked for": (FULL, [A, B, C], "abc", "02", "", "02", "", ""),
    "a day that is asked for, and records of it are gone": (FULL, [A, C], "ac", "02", "", "", "02", ""),
    "a file for a final day": ("02 b; 03 bc", [A, B, C], "abc", "", "02", "", "", "a"),
    "a final day that is asked for": ("02 b; 03 bc", [A, B, C], "abc", "01", "02", "01", "", ""),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_days_are_due_if_the_journal_has_something_else_for_them(name: str) -> None:
    text, files, names, asked, first_open, days, left, late = HISTORIES[name]
    by_name = {"a": A, "b": B, "c": C}
    recorded = {
        f"2026-03-{day}": {one: by_name[one] for one in of_day}
        for day, of_day in (part.split() for part in text.split("; ") if part)
    }
    due = find_due(
        files,
        set(names),
        lambda day: recorded.get(day, {}),
        recorded,
        asked={f"2026-03-{day}" for day in asked.split()},
        first_open=first_open and f"2026-03-{first_open}",
    )
    assert " ".join(sorted(day[-2:] for day in due.days)) == days
    assert " ".join(sorted(day[-2:] for day in due.left)) == left
    assert due.late == set(late)
    assert not due.days & due.fixed
