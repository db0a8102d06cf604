"""Every table against the truth about fleets whose faults are known."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline.driver.compute import Result
from examples.fleet_model import Burst, Down, Fleet, Forged, Late, Loss, Recording, Restart, Source
from examples.simulation import write
from tests.pipeline.fleets import causes, check, computed, differences, tables_of
from tests.pipeline.journals import T, put, row
from tests.pipeline.truth import Truth

#: a moment before midnight, and the start of a day
BEFORE_MIDNIGHT = 1_788_047_880
DAY = 1_787_961_600


def test_a_fleet_with_every_fault(spark: SparkSession, tmp_path: Path) -> None:
    """Loss at receivers and at senders, copies, late ones, restarts noticed, swallowed and missed, wrong clocks,
    forgeries, a host that is down, recorders that come and go, a second segment."""
    fleet = Fleet(
        hosts=("a", "b", "c", "d", "e", "far"),
        sources=(
            Source("a/plain/1", "a", 4, channels=("p", "q"), heartbeat=5, copies=2),
            Source("b/old", "b", 9, start=0, own=False, restarts=(Restart(30.2, 0), Restart(60.7, 1))),
            Source("c/clock", "c", 5, heartbeat=5, restarts=(Restart(70.5),)),
            Source("d/busy", "d", 3, bursts=(Burst(50, 2, 200, "flood"),)),
            Source("far/alone", "far", 2, channels=("!", "!a/x/1", "z")),
        ),
        duration=150,
        start=DAY,
        losses=(
            Loss("c", probability=0.05),
            Loss("d", "b/old", 27, 33, probability=0.5),
            Loss("e", "b/old", 20, 65, every=1),
            Loss(None, "c/clock", every=7),
            Loss(None, "b/old", 40, 42, every=1),
        ),
        lates=(Late("b", "a/plain/1", 5, 0.6),),
        forged=(Forged(20, 3, 9, "a/plain/1"),),
        downs=(Down("d", 90.007, 110.007),),
        offsets={"b": 3.25, "c": -2.5, "far": 100.0},
        recordings={"e": (Recording(0, 100.006), Recording(101.006, 120.006, fresh=False), Recording(130.007, 150))},
        segments={"far": "other"},
        sessionless=frozenset({"a"}),
    )
    _, result = check(spark, fleet, tmp_path)
    assert causes(result) == {
        ("a/plain/1", 1): "first",
        ("b/old", 1): "first",
        ("b/old", 2): "restart",
        ("b/old", 3): "restart",
        ("c/clock", 1): "first",
        ("c/clock", 2): "jump",
        ("d/busy", 1): "first",
        ("far/alone", 1): "first",
    }


def test_days_one_by_one_and_in_any_order_are_all_days_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Messages over midnight by clocks that differ, a restart on each side of it, and a file that comes late: the
    evening of a receiver that alone heard the first restart."""
    fleet = Fleet(
        hosts=("a", "b", "c"),
        sources=(
            Source("a/plain/1", "a", 5, heartbeat=5),
            Source("b/old", "b", 8, start=1, own=False, restarts=(Restart(60.7, 1), Restart(240.4, 1))),
            Source("c/slow", "c", 0.004),
        ),
        duration=300,
        start=BEFORE_MIDNIGHT,
        losses=(Loss("c", probability=0.1), Loss(None, "a/plain/1", 118, 122, every=2)),
        offsets={"b": 1.25, "c": -0.5},
        recordings={"c": (Recording(0, 200.006),), "a": (Recording(100.006, 300),)},
    )
    whole, part = tmp_path / "whole", tmp_path / "some"
    truth = Truth(write(fleet, str(whole)))
    together = computed(spark, whole)
    assert differences(tables_of(together), truth) == {}
    days = sorted(truth.hosts)
    assert len(days) == 2

    # the second day first, while the evening of b is still missing
    shutil.copytree(whole, part)
    shutil.rmtree(part / f"obs/host=b/day={days[0]}")
    state = None
    for day in reversed(days):
        state = kept(spark, computed(spark, part, days=[day], state=state), state)
    # now it is there: its own day is computed, and those whose rows go to other epochs
    assert state is not None
    again = computed(spark, whole, days=days[:1], state=without(state, days[0]))
    assert again.renumbered == days[1:]
    last = computed(spark, whole, days=days[1:], state=kept(spark, again, None))
    assert last.renumbered == []
    assert tables_of(again, last) == tables_of(together)


def kept(spark: SparkSession, result: Result, state: DataFrame | None) -> DataFrame:
    """What is kept of days, gone through Spark, as where it is kept in files."""
    table = result.state.toArrow()
    state = None if state is None else without(state, *result.days)
    rows = table if state is None else pa.concat_tables([state.toArrow(), table])
    return spark.createDataFrame(rows)


def without(state: DataFrame, *days: str) -> DataFrame:
    return state.filter(~F.col("day").isin(*days))


def test_higher_numbers_of_the_day_before_that_come_late_have_the_next_day_computed_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Far from midnight, so that no margin takes both."""
    noon, days = T // 1000 // 86_400_000_000 * 86_400_000_000 + 43_200_000_000, ["2023-11-14", "2023-11-15"]
    early, late = tmp_path / "early", tmp_path / "late"
    for journal, most in ((early, {"h1": 3}), (late, {"h1": 3, "h2": 9})):
        for host, count in most.items():
            put(
                journal,
                host,
                "j1",
                1,
                [row(1 + key, at=(noon + key * 1_000_000 - T // 1000) / 1e6) for key in range(count)],
            )
        put(
            journal,
            "h1",
            "j1",
            4,
            [row(1 + key, at=(noon + 86_400_000_000 + key * 1_000_000 - T // 1000) / 1e6) for key in (9, 10)],
        )
    state: DataFrame | None = None
    for day, journal, renumbered in ((1, early, []), (0, early, days[1:]), (1, early, []), (0, late, days[1:])):
        other_days = None if state is None else without(state, days[day])
        result = computed(spark, journal, days=[days[day]], state=other_days)
        assert result.renumbered == renumbered
        state = kept(spark, result, other_days)


@pytest.mark.parametrize("ahead", [-3600.75, 3600.75])
def test_a_clock_that_is_an_hour_off_moves_no_message(spark: SparkSession, tmp_path: Path, ahead: float) -> None:
    """Over midnight; it is that of the host with most rows, which others are compared with."""
    fleet = Fleet(
        hosts=("a", "b", "c", "d"),
        sources=(Source("a/plain/1", "a", 5, heartbeat=5, copies=2), Source("b/old", "b", 3, start=1, own=False)),
        duration=300,
        start=BEFORE_MIDNIGHT,
        losses=(Loss("c", probability=0.1), Loss("d", probability=0.05), Loss(None, "a/plain/1", 118, 122, every=2)),
        offsets={"b": ahead, "c": 0.5},
        recordings={"d": (Recording(0, 200.006),)},
    )
    simulation, _ = check(spark, fleet, tmp_path)
    assert len(Truth(simulation).hosts) == 2


def test_seventy_hosts(spark: SparkSession, tmp_path: Path) -> None:
    """More than there are bits in a number."""
    fleet = Fleet(
        hosts=tuple(f"h{number:02}" for number in range(70)),
        sources=(Source("h00/x/1", "h00", 1), Source("h69/y/1", "h69", 1)),
        duration=20,
        losses=(Loss("h66", probability=0.3), Loss("h62", every=3), Loss("h63", every=4)),
    )
    check(spark, fleet, tmp_path)
