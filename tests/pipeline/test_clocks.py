"""Which clocks are wrong, and by how much rows are moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from bccnd.pipeline.clocks import Clock, Clocks, Compared
from bccnd.pipeline.driver.build import once
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from examples.simulation import write
from tests.pipeline.fleets import differences, tables_of
from tests.pipeline.hand_made import Journal, at, lost, numbered, tables
from tests.pipeline.test_truth import an_hour_off
from tests.pipeline.threedays import arrive, files
from tests.pipeline.truth import Truth

MINUTE = 60_000_000
HOUR = 60 * MINUTE
BEFORE, DAY, AFTER, LATER = "2026-02-28", "2026-03-01", "2026-03-02", "2026-03-03"


def compared(ahead: dict[str, int], reference: str = "a", day: str = DAY) -> list[Compared]:
    """Hosts with one session each, which begins at 0."""
    return [
        Compared(day, host, journal, 0, reference, by - 9, by, by + 9, 5)
        for host, by in ahead.items()
        for journal in ("", "j")
    ]


@pytest.mark.parametrize(
    ("ahead", "moved"),
    [
        ({"b": 5, "c": -7}, {}),
        ({"b": 29_999_999, "c": -29_999_999}, {}),
        ({"b": 5, "c": HOUR + 5}, {"c": HOUR}),
        ({"b": 5, "c": 5 - HOUR}, {"c": -HOUR}),
        ({"b": HOUR + 5, "c": HOUR + 9}, {"a": -HOUR}),  # the one that others are compared with
        ({"b": 30_000_000}, {"b": MINUTE}),
        ({"b": -HOUR}, {"a": HOUR}),  # of two the slower one is right
    ],
)
def test_clocks_are_moved_by_whole_minutes_to_the_middle_one(ahead: dict[str, int], moved: dict[str, int]) -> None:
    clocks = Clocks(compared(ahead))
    shifts = {host: clocks.of((host, "j", 0), DAY).shift for host in ("a", *ahead)}
    assert {host: by for host, by in shifts.items() if by} == moved


def test_what_is_left_is_how_far_a_clock_is_ahead() -> None:
    assert Clocks(compared({"b": 5, "c": HOUR + 7})).of(("c", "j", 0), DAY) == Clock(HOUR, 2)


def test_a_day_without_common_messages_goes_by_those_beside_it() -> None:
    clocks = Clocks(compared({"b": HOUR, "c": 0, "d": 0}))
    found = {day: clocks.of(("b", "j", 0), day).shift for day in (BEFORE, DAY, AFTER, LATER)}
    assert found == {BEFORE: HOUR, DAY: HOUR, AFTER: HOUR, LATER: 0}


def test_late_rows_of_a_wrong_clock_go_to_their_days(tmp_path: Path) -> None:
    """All of them carry the second day; some are of the first."""
    whole, journal = tmp_path / "whole", tmp_path / "journal"
    simulation = write(an_hour_off(3600.75), str(whole))
    for hosts in ("acd", "b"):  # the one with the wrong clock comes last
        for path in [*files(whole), *(whole / "sessions").rglob("*.parquet")]:
            if any(f"host={host}" in str(path) for host in hosts):
                arrive(whole, journal, path)
        once(EmbeddedRunner(), str(journal), str(tmp_path / "tables"))
    assert differences(tables_of(tmp_path / "tables"), Truth(simulation)) == {}


def test_skew_is_that_from_the_host_with_most_rows(tmp_path: Path) -> None:
    apart = [one._replace(ts=one.ts + place * 1000) for place, one in enumerate(numbered(range(101)))]
    rows = tables(tmp_path, Journal("h1", apart), Journal("h2", numbered(range(102))))
    assert [tuple(row.values())[:6] for row in rows["skew"]] == [("h1", "h2", 5000, 50_000, 95_000, 101)]


def test_a_host_that_boots_in_1970_moves_no_other(tmp_path: Path) -> None:
    """Its records are set aside and named; those of its next session, with a clock that is right, count."""
    steady = numbered(range(1, 101))
    early = [one._replace(ts=one.ts - at(0)) for one in steady[:40]]
    rows = tables(
        tmp_path, Journal("h1", early, name="j0"), Journal("h1", steady[40:], [(40, 99)]), Journal("h2", steady)
    )
    assert {row["day"] for row in rows["link_loss"]} == {DAY}
    assert lost(rows) == {}
    assert sum(row["not_listening"] for row in rows["link_loss"]) == 40
