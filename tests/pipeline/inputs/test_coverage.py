"""Records that a journal lacks are not known: sessions are cut around them, whatever is missing, and where."""

from __future__ import annotations

import pytest

from bccnd.pipeline.inputs.coverage import Before, DamagedFile, Missing, covered, find_missing, repeated
from bccnd.pipeline.inputs.sessions import UNKNOWN, JournalSession, number
from bccnd.pipeline.inputs.verification import JournalFile


def file(first: int, rows: int, low: int, high: int, host: str = "h", journal: str = "j") -> JournalFile:
    path = f"obs/host={host}/day=2026-03-01/{journal}-{first:012d}.parquet"
    return JournalFile(path, host, journal, "2026-03-01", first, rows, low, high, ("lan",), 9, 9, "", True, True)


def session(start: int, end: int, first: int = UNKNOWN, last: int = UNKNOWN) -> JournalSession:
    return JournalSession("h", "j", start, end, first_rec_no=first, last_rec_no=last)


def damaged(first: int) -> DamagedFile:
    return DamagedFile(file(first, 1, 0, 0).path, 9, 9, "", "why", "h", "j", first)


A, B, C = file(1, 10, 100, 109), file(11, 10, 110, 119), file(21, 10, 120, 129)
WHOLE = [session(95, 140, 1, 30)]
#: files, damaged files by their first number, sessions (start, end, first, last) -> missing (first, last, low, high),
#: and what is left of the sessions (start, end)
CASES = {
    "nothing is missing": ([A, B, C], [], WHOLE, [], [(95, 140)]),
    "in the middle": ([A, C], [], WHOLE, [(11, 20, 110, 119)], [(95, 109), (120, 140)]),
    "at the end": ([A, B], [], WHOLE, [(21, 30, 120, 140)], [(95, 119)]),
    "at the beginning": ([B, C], [], WHOLE, [(1, 10, 95, 109)], [(110, 140)]),
    "all": ([], [], WHOLE, [(1, 30, 95, 140)], []),
    "damaged": ([A, C], [11], WHOLE, [], [(95, 109), (120, 140)]),
    "the last one is damaged": ([A, B], [21], [session(95, 140, 1, 20)], [], [(95, 119)]),
    "one missing and one damaged": ([A], [21], WHOLE, [(11, 20, 110, 140)], [(95, 109)]),
    "a damaged copy of what is there": ([A, B, C], [15], WHOLE, [], [(95, 140)]),
    "files run ahead of the sessions": ([A, B, C], [], [session(95, 115, 1, 15)], [], [(95, 115)]),
    "a session without records": (
        [A],
        [],
        [session(95, 112, 1, 10), session(113, 140, 11, 10)],
        [],
        [(95, 112), (113, 140)],
    ),
    "what retention took": ([C], [], [session(120, 140, 21, 30)], [], [(120, 140)]),
    "two sessions, from one to the other": (
        [A, C],
        [],
        [session(95, 112, 1, 12), session(115, 140, 13, 30)],
        [(11, 12, 110, 112), (13, 20, 115, 119)],
        [(95, 109), (120, 140)],
    ),
    "the clock was set back between": (
        [A, file(21, 10, 20, 29)],
        [],
        [session(95, 112, 1, 12), session(5, 40, 13, 30)],
        [(11, 12, 110, 112), (13, 20, 5, 19)],
        [(20, 40), (95, 109)],
    ),
    "a session without numbers": (
        [A, C],
        [],
        [session(95, 140)],
        [(11, 20, 110, 119)],
        [(95, 109), (120, 140)],
    ),
    "two sessions without numbers": (
        [A, B, C],
        [],
        [session(95, 112), session(118, 140)],
        [],
        [(95, 112), (118, 140)],
    ),
    "no session": ([A, C], [], [], [(11, 20, 110, 119)], [(100, 109), (120, 129)]),
    "rows of the same moment": (
        [A, file(21, 10, 109, 129)],
        [],
        WHOLE,
        [(11, 20, 108, 110)],
        [(95, 107), (111, 140)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sessions_do_not_cover_what_is_missing(name: str) -> None:
    files, bad, sessions, expected, left = CASES[name]
    sessions = number(sessions, files)
    missing, with_times = find_missing(files, [damaged(first) for first in bad], sessions)
    assert [row[2:] for row in missing] == expected
    parts = covered(sessions, missing, with_times)
    assert sorted((part.start_us, part.end_us) for part in parts) == left
    for part in parts:
        # A file stays with the part that has its rows.
        for one in files:
            if part.start_us <= one.low_us and one.high_us <= part.end_us:
                assert part.first_rec_no <= one.first_rec


#: sessions before and what was missing (first, last), sessions now, files that are looked at -> missing (first, last);
#: days before 110 are final
FINAL = {
    "nothing is missing": ([session(95, 120, 1, 20)], [], WHOLE, [B, C], []),
    "the files of days that are not final have not come": ([session(95, 109, 1, 10)], [], WHOLE, [], [(11, 30)]),
    "the first of them": ([session(95, 109, 1, 10)], [], WHOLE, [C], [(11, 20)]),
    "a file of a final day, as before": ([session(95, 120, 1, 20)], [(4, 6)], WHOLE, [B, C], [(4, 6)]),
    "it was of the first open day": ([session(95, 140, 1, 30)], [(11, 20)], WHOLE, [C], [(11, 20)]),
    "it has come": ([session(95, 140, 1, 30)], [(11, 20)], WHOLE, [B, C], []),
    "a new journal": ([], [], [session(115, 140, 1, 30)], [C], [(1, 20)]),
    "a journal that began on a final day and comes now": ([], [], WHOLE, [B, C], []),
    "its files have not come": ([], [], WHOLE, [], [(1, 30)]),
}


@pytest.mark.parametrize("name", FINAL)
def test_what_is_not_looked_at_any_more_is_as_it_was(name: str) -> None:
    sessions_before, known, sessions, files, expected = FINAL[name]
    missing_before = [Missing("h", "j", first, last, 96, 98) for first, last in known]
    missing, _ = find_missing(files, [], sessions, Before(sessions_before, missing_before, 110))
    assert [(row.first_rec, row.last_rec) for row in missing] == expected


def test_of_two_files_with_the_same_records_one_is_used() -> None:
    other_journal, other_host = file(5, 3, 0, 9, journal="k"), file(1, 10, 0, 9, host="g")
    copy, part = file(1, 9, 100, 108), file(15, 3, 114, 116)
    assert repeated([part, A, B, C, other_journal, other_host]) == {part: B}
    assert len(repeated([A, copy])) == 1
