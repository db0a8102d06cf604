"""Which clocks are wrong, by how much rows are moved, and which days that touches."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline.driver.build import build
from bccnd.pipeline.driver.incremental import once
from bccnd.pipeline.hosts import clocks
from bccnd.pipeline.hosts.clocks import Clock, KeptClocks, Skew
from examples.fleet_model import Fleet, Loss, Source
from examples.simulation import write
from tests.pipeline.threedays import arrive, content, files

MINUTE = 60_000_000
HOUR = 60 * MINUTE
BEFORE, DAY, AFTER, LATER = "2026-02-28", "2026-03-01", "2026-03-02", "2026-03-03"


def wrong(ahead: dict[str, int], reference: str = "a") -> dict[str, int]:
    """By how much the rows of hosts are moved, from how far each is ahead of the reference."""
    apart = [Skew(DAY, host, reference, by - 9, by, by + 9) for host, by in ahead.items()]
    corrections, guessed = clocks.corrections(clocks.offsets(apart), {DAY: {reference, *ahead}}, [DAY])
    assert not guessed
    return {host: by for (_, host), by in corrections.items()}


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
def test_the_middle_clock_is_right_and_others_are_moved_by_whole_minutes(
    ahead: dict[str, int], moved: dict[str, int]
) -> None:
    assert wrong(ahead) == moved


def test_hosts_that_share_no_source_are_not_compared() -> None:
    apart = [Skew(DAY, "b", "a", HOUR, HOUR, HOUR), Skew(DAY, "y", "x", 0, 5, 9)]
    assert clocks.offsets(apart) == {
        (DAY, "a"): Clock(0, 0),
        (DAY, "b"): Clock(HOUR, 0),
        (DAY, "x"): Clock(0, 0),
        (DAY, "y"): Clock(5, 9),
    }


def test_a_day_without_a_message_in_common_goes_by_the_days_beside_it() -> None:
    apart = [Skew(DAY, "b", "a", HOUR, HOUR, HOUR), Skew(DAY, "c", "a", 0, 0, 0)]
    offsets, rows = clocks.offsets(apart), {DAY: {"a", "b", "c"}, AFTER: {"b"}}
    both = {(DAY, "b"): HOUR, (AFTER, "b"): HOUR}
    assert clocks.corrections(offsets, rows, [DAY, AFTER]) == (both, {(AFTER, "b")})
    # What was found when a day was computed is what it is.
    assert clocks.corrections(offsets, rows, [DAY], KeptClocks({}, {}, (), {AFTER})) == ({(DAY, "b"): HOUR}, set())
    kept_clocks = KeptClocks({}, {(DAY, "b"): HOUR}, (), {DAY})
    assert clocks.corrections({}, {AFTER: {"b"}}, [AFTER], kept_clocks) == (both, {(AFTER, "b")})
    # A guess is no ground for another one.
    guessed = KeptClocks({}, {(AFTER, "b"): HOUR}, {(AFTER, "b")}, {AFTER})
    assert clocks.corrections({}, {LATER: {"b"}}, [LATER], guessed)[0] == {(AFTER, "b"): HOUR}


def test_days_to_which_rows_move_are_computed_as_well() -> None:
    ahead, behind = {(DAY, "b"): HOUR}, {(DAY, "b"): -HOUR}
    assert clocks.days_touched([DAY], [DAY], {}, {}) == set()
    assert clocks.days_touched([DAY], [DAY], ahead, ahead) == {BEFORE}
    assert clocks.days_touched([DAY], [DAY], behind, behind) == {AFTER}
    assert clocks.days_touched([], [DAY], ahead, ahead) == set()
    for now, before in ((ahead, {}), ({}, ahead), (ahead, behind)):
        assert clocks.days_touched([], [DAY], now, before) == {BEFORE, AFTER}
    assert clocks.widest([AFTER], ahead) == datetime.timedelta(hours=1)
    assert clocks.widest([LATER], ahead) == datetime.timedelta(0)


def test_rows_of_a_wrong_clock_that_come_late_go_to_the_days_of_a_build(spark: SparkSession, tmp_path: Path) -> None:
    """All of them carry the second day; some are of the first."""
    whole, journal = tmp_path / "whole", tmp_path / "journal"
    fleet = Fleet(
        hosts=("a", "b", "c"),
        sources=(Source("a/plain/1", "a", 2, heartbeat=5), Source("b/other/1", "b", 1)),
        duration=240,
        start=1_788_047_880,  # two minutes before midnight
        losses=(Loss("a", probability=0.05),),
        offsets={"c": 3600.75},
    )
    write(fleet, str(whole))
    for path in (whole / "sessions").rglob("*.parquet"):
        arrive(whole, journal, path)
    for late in (False, True):
        for path in files(whole):
            if ("host=c" in str(path)) == late:
                arrive(whole, journal, path)
        once(spark, str(journal), str(tmp_path / "streamed"))
    build(spark, str(whole), str(tmp_path / "built"))
    expected = content(tmp_path / "built")
    assert content(tmp_path / "streamed") == expected
    assert not [row for row in expected["missed"] if row[4] == "c"]
    assert once(spark, str(journal), str(tmp_path / "streamed")).days == []
