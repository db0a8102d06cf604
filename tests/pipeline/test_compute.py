"""Every table against the truth about fleets whose faults are known."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import bccnd.pipeline.compute as compute_module
from bccnd.pipeline.compute import compute
from examples.simulation import Burst, Down, Fleet, Forged, Late, Loss, Recording, Restart, Source, write
from tests.pipeline.fleets import around, causes, check, differences, read, tables_of
from tests.pipeline.frames import obs, sessions
from tests.pipeline.truth import Truth

#: a moment before midnight, and the start of a day
BEFORE_MIDNIGHT = 1_788_047_880
DAY = 1_787_961_600
DAY_SECONDS = 86_400


@pytest.mark.parametrize("local", [compute_module.LOCAL, 0], ids=["here", "by Spark"])
def test_a_fleet_with_every_fault(
    spark: SparkSession, tmp_path: Path, local: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss at receivers and at senders, copies, late ones, restarts noticed, swallowed and missed, wrong clocks,
    forgeries, a host that is down, recorders that come and go, a second segment."""
    monkeypatch.setattr(compute_module, "LOCAL", local)
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
    result.close()


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
    simulation = write(fleet, str(tmp_path))
    truth = Truth(simulation)
    obs, sessions = read(spark, tmp_path)
    together = compute(spark, obs, sessions)
    assert differences(tables_of(together), truth) == {}
    days = sorted(truth.hosts)
    assert len(days) == 2

    # the second day first, while the evening of b is still missing
    state = None
    some = obs.filter(~((F.col("host") == "b") & (F.col("ts") < days[1])))
    for day in reversed(days):
        alone = compute(spark, around(some, [day]), sessions, days=[day], state=state)
        found = alone.state.toArrow()
        alone.close()
        kept = found if state is None else pa.concat_tables([state.toArrow(), found])
        state = spark.createDataFrame(kept)
    # now it is there: its own day is computed, and those that are numbered otherwise
    assert state is not None
    again = compute(spark, around(obs, days[:1]), sessions, days=days[:1], state=state.filter(F.col("day") != days[0]))
    assert again.renumbered == days[1:]
    first = again.state.toArrow()
    last = compute(spark, around(obs, days[1:]), sessions, days=days[1:], state=spark.createDataFrame(first))
    assert last.renumbered == []
    parts = [tables_of(again), tables_of(last)]
    for name, rows in tables_of(together).items():
        if name == "epochs":
            assert parts[1][name] == rows
        else:
            assert parts[0][name] | parts[1][name] == rows, name
    for result in (together, again, last):
        result.close()


def test_higher_numbers_of_the_day_before_that_come_late_have_the_next_day_computed_anew(spark: SparkSession) -> None:
    """Far from midnight, so that no margin takes both."""
    noon, days = 43_200, ["2026-03-01", "2026-03-02"]
    first = [
        {"s": noon + key, "seq_key": key, "host": host} for host, most in (("h1", 3), ("h2", 9)) for key in range(most)
    ]
    second = [{"s": DAY_SECONDS + noon + key, "seq_key": key} for key in (9, 10)]
    state: DataFrame | None = None
    for day, rows, renumbered in ((1, second, []), (0, first[:3], days[1:]), (1, second, []), (0, first, days[1:])):
        others = None if state is None else state.filter(F.col("day") != days[day])
        result = compute(spark, obs(spark, *rows), sessions(spark), days=[days[day]], state=others)
        assert result.renumbered == renumbered
        found = result.state.toArrow()
        state = spark.createDataFrame(found if others is None else pa.concat_tables([others.toArrow(), found]))
        result.close()


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
    simulation, result = check(spark, fleet, tmp_path)
    assert len(Truth(simulation).hosts) == 2
    result.close()


def test_seventy_hosts_take_two_words(spark: SparkSession, tmp_path: Path) -> None:
    hosts = tuple(f"h{number:02}" for number in range(70))
    fleet = Fleet(
        hosts=hosts,
        sources=(Source("h00/x/1", "h00", 1), Source("h69/y/1", "h69", 1)),
        duration=20,
        losses=(Loss("h66", probability=0.3), Loss("h62", every=3), Loss("h63", every=4)),
    )
    _, result = check(spark, fleet, tmp_path)
    assert result.words == 2
    result.close()
