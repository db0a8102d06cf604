"""Every table against the truth about fleets whose faults are known."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bccnd.pipeline.simulate import (
    Burst,
    Down,
    Fleet,
    Forged,
    Late,
    Loss,
    Recording,
    Restart,
    Source,
)
from tests.pipeline.fleets import causes, check

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
            Source("b/old", "b", 9, start=1, own=False, restarts=(Restart(30.2, 1), Restart(60.7, 1))),
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
