"""Records that a journal lacks are not known: sessions are cut around them, whatever is missing, and where."""

from __future__ import annotations

import re

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
#: and one after the clock was set back, one with rows of the moment in which A ends
FILES = {"A": A, "B": B, "C": C, "back": file(21, 10, 20, 29), "same": file(21, 10, 109, 129)}


def ranges(text: str) -> list[tuple[int, int]]:
    return [(int(first), int(last)) for first, _, last in (part.partition("-") for part in text.split())]


def sessions(text: str) -> list[JournalSession]:
    """Each from when to when and, behind a colon, the numbers of its records: ``95-112:1-12``."""
    return [session(*map(int, re.split("[-:]", part))) for part in text.split()]


WHOLE = "95-140:1-30"
#: files and, with !, the first numbers of damaged ones; sessions -> missing records and the time in which they came,
#: and what is left of the sessions
CASES: dict[str, tuple[str, str, str, str]] = {
    "nothing is missing": ("A B C", WHOLE, "", "95-140"),
    "in the middle": ("A C", WHOLE, "11-20@110-119", "95-109 120-140"),
    "at the end": ("A B", WHOLE, "21-30@120-140", "95-119"),
    "at the beginning": ("B C", WHOLE, "1-10@95-109", "110-140"),
    "all": ("", WHOLE, "1-30@95-140", ""),
    "damaged": ("A C 11!", WHOLE, "", "95-109 120-140"),
    "the last one is damaged": ("A B 21!", "95-140:1-20", "", "95-119"),
    "one missing and one damaged": ("A 21!", WHOLE, "11-20@110-140", "95-109"),
    "a damaged copy of what is there": ("A B C 15!", WHOLE, "", "95-140"),
    "files run ahead of the sessions": ("A B C", "95-115:1-15", "", "95-115"),
    "a session without records": ("A", "95-112:1-10 113-140:11-10", "", "95-112 113-140"),
    "what retention took": ("C", "120-140:21-30", "", "120-140"),
    "from one session to the other": (
        "A C",
        "95-112:1-12 115-140:13-30",
        "11-12@110-112 13-20@115-119",
        "95-109 120-140",
    ),
    "the clock was set back between": (
        "A back",
        "95-112:1-12 5-40:13-30",
        "11-12@110-112 13-20@5-19",
        "20-40 95-109",
    ),
    "a session without numbers": ("A C", "95-140", "11-20@110-119", "95-109 120-140"),
    "two sessions without numbers": ("A B C", "95-112 118-140", "", "95-112 118-140"),
    "no session": ("A C", "", "11-20@110-119", "100-109 120-129"),
    "rows of the same moment": ("A same", WHOLE, "11-20@108-110", "95-107 111-140"),
}


@pytest.mark.parametrize(("journal", "recorded", "missing", "left"), CASES.values(), ids=CASES)
def test_sessions_do_not_cover_what_is_missing(journal: str, recorded: str, missing: str, left: str) -> None:
    files = [FILES[name] for name in journal.split() if name in FILES]
    bad = [damaged(int(name[:-1])) for name in journal.split() if name not in FILES]
    numbered = number(sessions(recorded), files)
    found, with_times = find_missing(files, bad, numbered)
    assert " ".join(f"{row[2]}-{row[3]}@{row[4]}-{row[5]}" for row in found) == missing
    parts = covered(numbered, found, with_times)
    assert sorted((part.start_us, part.end_us) for part in parts) == ranges(left)
    for part in parts:
        # A file stays with the part that has its rows.
        for one in files:
            if part.start_us <= one.low_us and one.high_us <= part.end_us:
                assert part.first_rec_no <= one.first_rec


#: sessions before and what was missing, sessions now, files that are looked at -> what is missing; days before 110 are
#: final
FINAL: dict[str, tuple[str, str, str, str, str]] = {
    "nothing is missing": ("95-120:1-20", "", WHOLE, "B C", ""),
    "the files of days that are not final have not come": ("95-109:1-10", "", WHOLE, "", "11-30"),
    "the first of them": ("95-109:1-10", "", WHOLE, "C", "11-20"),
    "a file of a final day, as before": ("95-120:1-20", "4-6", WHOLE, "B C", "4-6"),
    "it was of the first open day": (WHOLE, "11-20", WHOLE, "C", "11-20"),
    "it has come": (WHOLE, "11-20", WHOLE, "B C", ""),
    "a new journal": ("", "", "115-140:1-30", "C", "1-20"),
    "a journal that began on a final day and comes now": ("", "", WHOLE, "B C", ""),
    "its files have not come": ("", "", WHOLE, "", "1-30"),
}


@pytest.mark.parametrize(("before", "known", "now", "files", "expected"), FINAL.values(), ids=FINAL)
def test_what_is_not_looked_at_any_more_is_as_it_was(
    before: str, known: str, now: str, files: str, expected: str
) -> None:
    missing_before = [Missing("h", "j", first, last, 96, 98) for first, last in ranges(known)]
    listed = [FILES[name] for name in files.split()]
    missing, _ = find_missing(listed, [], sessions(now), Before(sessions(before), missing_before, 110))
    assert [(row.first_rec, row.last_rec) for row in missing] == ranges(expected)


def test_of_two_files_with_the_same_records_one_is_used() -> None:
    other_journal, other_host = file(5, 3, 0, 9, journal="k"), file(1, 10, 0, 9, host="g")
    copy, part = file(1, 9, 100, 108), file(15, 3, 114, 116)
    assert repeated([part, A, B, C, other_journal, other_host]) == {part: B}
    assert len(repeated([A, copy])) == 1
