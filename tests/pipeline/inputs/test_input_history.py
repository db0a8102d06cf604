"""What retention takes is remembered: sessions as they were, and the days of which records are gone."""

from __future__ import annotations

import datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest

from bccnd.journal.file_names import ObsFile
from bccnd.pipeline.inputs.input_history import (
    InputHistory,
    Records,
    Session,
    changed,
    read_sessions,
    remember,
    sessions_table,
    touched,
)
from bccnd.pipeline.inputs.journal_files import Input


class Kept:
    """The files that the tables of days were made of, in place of these tables."""

    def __init__(self, *records: Records) -> None:
        self._records = records

    def days(self, _table: str) -> set[str]:
        return {record.day for record in self._records}

    def load(self, _table: str, columns: pa.Schema, days: set[str]) -> pa.Table:
        rows = [record._asdict() for record in self._records if record.day in days]
        return pa.Table.from_pylist(rows, columns.append(pa.field("day", pa.string())))


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
def test_rows_touch_their_day_and_those_near_to_midnight_its_neighbour(low: str, high: str, days: list[str]) -> None:
    assert touched([(moment(low), moment(high))]) == {f"2026-03-{day}" for day in days}


def test_sessions_touch_the_days_in_which_they_differ() -> None:
    early = Session("h", "j", moment("01T12:00:00"), moment("02T12:00:00"))
    late = Session("h", "j", moment("04T12:00:00"), moment("04T13:00:00"))
    before = [early, late]
    assert changed(before, before) == set()
    # a stretch that goes on touches only what is new of it
    assert changed(before, [early._replace(end=moment("03T12:00:00")), late]) == {"2026-03-02", "2026-03-03"}
    assert changed(before, [early]) == {"2026-03-04"}
    assert changed([], before) == {"2026-03-01", "2026-03-02", "2026-03-04"}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([(0, 10), (20, 30)], [(0, 10), (20, 30)]),
        ([(5, 10), (20, 30)], [(0, 10), (20, 30)]),
        ([(5, 10), (20, 40), (50, 60)], [(0, 10), (20, 40), (50, 60)]),
        ([(25, 30)], [(0, 10), (20, 30)]),
        ([(25, 45)], [(0, 10), (20, 45)]),
        # nobody knows of 30 to 35: what was recorded then went before it was seen
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
    def of(journal: str, spans: list[tuple[int, int]]) -> list[Session]:
        return [Session("h", journal, start, end) for start, end in spans]

    before = of("a", [(0, 10), (20, 30)])
    remembered = remember(before, [*of("b", [(1, 2)]), *of("a", after)])
    assert remembered == [*of("a", expected), *of("b", [(1, 2)])]
    assert remember(remembered, [*of("a", after), *of("b", [(1, 2)])]) == remembered


def test_a_day_is_incomplete_once_one_of_its_files_is_gone() -> None:
    kept, near_midnight, gone = (ObsFile("h", f"2026-03-{day}", "j", 1) for day in ("01", "02", "03"))
    made_of = [Records(file.path, 10, 0, 1, file.day) for file in (kept, near_midnight, gone)]
    made_of.append(Records(near_midnight.path, 10, 0, 1, "2026-03-01"))
    days = [file.day for file in (kept, near_midnight, gone)]

    def left(*files: ObsFile) -> set[str]:
        journal = SimpleNamespace(
            files=[Input(file, file.path, 9) for file in files], days=days, ends=lambda paths: dict.fromkeys(paths)
        )
        past = InputHistory(Kept(*made_of), journal)  # type: ignore[arg-type]
        assert past.complete(days) == {*days} - past.left
        return past.left

    assert left(kept, near_midnight, gone) == set()
    assert left(kept, near_midnight) == {"2026-03-03"}
    assert left(kept, gone) == {"2026-03-01", "2026-03-02"}


def test_sessions_are_the_same_as_a_table_and_as_rows() -> None:
    rows = [Session("h", "j", moment("01T12:00:00"), moment("02T12:00:00"), 1, 2, "1.0"), Session("h", "k", 3, 4)]
    assert read_sessions(sessions_table(rows)) == rows
    assert read_sessions(sessions_table([])) == []


def test_files_of_final_days_are_late_unless_the_tables_of_their_day_were_made_of_them() -> None:
    counted, new, beside = (ObsFile("h1", "2026-03-01", "j", number) for number in (1, 11, 21))
    files = [Input(file, file.path, 9) for file in (counted, new, beside)]
    # Of the last one only the last rows were looked at, for the day after it.
    made_of = [Records(counted.path, 10, 0, 1, "2026-03-01"), Records(beside.path, 10, 0, 1, "2026-03-02")]
    journal = SimpleNamespace(files=files, days=["2026-03-01"], ends=lambda paths: dict.fromkeys(paths))
    past = InputHistory(Kept(*made_of), journal, (), "2026-03-03")  # type: ignore[arg-type]
    assert past.late == [new.path, beside.path]
    assert past.days == set()
    assert past.complete(["2026-03-01", "2026-03-02"]) == set()
    assert past.left == set()
