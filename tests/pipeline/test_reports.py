"""What reports tell of in the tables: tails and outages that no receiver saw are lost, exactly and once."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline.build import build
from bccnd.pipeline.incremental import once
from examples.simulation import Burst, Down, Fleet, Late, Loss, Recording, Restart, Simulation, Source, write
from tests.pipeline.fleets import causes, check, computed
from tests.pipeline.threedays import DAY, START, arrive, content, files

HOSTS = ("a", "b", "c")


def reporters(hosts: tuple[str, ...], rate: float = 0.1, since: float = 0.0) -> tuple[Source, ...]:
    """The daemons of hosts, which send reports."""
    return tuple(
        Source(f"{host}/bccnd/1", host, rate, channels=(f"bccn/report/{host}",), since=since) for host in hosts
    )


def test_the_lost_end_of_a_burst_and_an_outage_are_counted_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """Of 2,000 messages at once the last 500 are lost at all receivers, and nothing follows; of another source 20,000
    numbers are lost in a second, which its rate does not explain."""
    fleet = Fleet(
        HOSTS,
        (
            Source("a/burst/1", "a", 0, bursts=(Burst(10, 1, 2000),)),
            Source("b/outage/1", "b", 10, bursts=(Burst(40, 1, 20_000),)),
            *reporters(HOSTS),
        ),
        duration=100,
        losses=(
            Loss(None, "a/burst/1", 10.75, 12, every=1),
            Loss("c", "a/burst/1", probability=0.1),
            Loss(None, "b/outage/1", 40, 41, every=1),
        ),
        offsets={"b": 1.5},
    )
    simulation, result = check(spark, fleet, tmp_path)
    sums = [F.sum(name).alias(name) for name in ("seen", "lost_here", "lost_everywhere", "expected")]
    found = {(row.host, row.src): row for row in result.tables["link_loss"].groupBy("host", "src").agg(*sums).collect()}
    for number, source in enumerate(fleet.sources[:2]):
        sent = sum(each.source == number for each in simulation.sent)
        for host in HOSTS:
            row = found[host, source.src]
            assert row.seen + row.lost_here + row.lost_everywhere == row.expected == sent
    assert found["a", "a/burst/1"].lost_everywhere == 500
    assert found["c", "b/outage/1"].lost_everywhere > 20_000
    assert set(causes(result).values()) == {"first"}


def test_without_reports_such_an_outage_is_a_jump(spark: SparkSession, tmp_path: Path) -> None:
    fleet = Fleet(
        ("a", "b"),
        (Source("b/outage/1", "b", 10, bursts=(Burst(20, 1, 3000),)),),
        duration=40,
        losses=(Loss(None, None, 20, 21, every=1),),
    )
    write(fleet, str(tmp_path))
    assert causes(computed(spark, tmp_path)) == {("b/outage/1", 1): "first", ("b/outage/1", 2): "jump"}


@pytest.mark.parametrize("seed", range(3))
def test_fleets_with_faults_at_random(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Over midnight, with tails and outages at all receivers or one, lost reports, restarts, copies, late messages,
    receivers that come and go, clocks that differ, and a source without reports."""
    chance = random.Random(seed)

    def gone(length: float) -> tuple[float, float]:
        start = chance.uniform(20, 260)
        return start, start + length

    sources = (
        Source("a/steady/1", "a", 3, heartbeat=5, copies=2),
        Source("b/bursts/1", "b", 0, bursts=tuple(Burst(at, 1, 300) for at in (15, *gone(60)))),
        Source("c/ends/1", "c", 7, until=chance.uniform(100, 250), restarts=(Restart(60.2),)),
        Source("a/outage/1", "a", 5, bursts=(Burst(150, 2, 2500),)),
        Source("c/old", "c", 4, start=1, own=False),
        *reporters(HOSTS, 0.2),
    )
    losses = [Loss(None, source.src, *gone(chance.uniform(5, 60)), every=1) for source in sources[:3]]
    fleet = Fleet(
        HOSTS,
        sources,
        duration=300,
        start=START + int(DAY) - 120,
        seed=seed,
        losses=(
            *losses,
            Loss(None, "a/outage/1", 150, 152, every=1),
            Loss("c", probability=0.1),
            Loss("b", probability=0.02),
            Loss(None, "b/bursts/1", probability=0.1),
            Loss(None, "a/bccnd/1", probability=0.3),
        ),
        lates=(Late("b", "a/steady/1", 5, 0.6),),
        offsets={"b": chance.uniform(-2, 2)},
        recordings={"c": (Recording(0, 100.006), Recording(130.007, 300))},
        sessionless=frozenset({"a"}),
    )
    check(spark, fleet, tmp_path)


def days_of_reports() -> Fleet:
    """Three hosts for five days: tails in the evening that reports tell of on later days only, or for days on end, and
    outages over midnight."""
    sources = (
        Source("h1/steady/1", "h1", 1 / 600, bursts=(Burst(2.4 * DAY, 60, 1500),)),
        Source("h1/evening/1", "h1", 0, bursts=(Burst(0.98 * DAY, 60, 40), Burst(3.2 * DAY, 60, 40))),
        Source("h2/ends/1", "h2", 1 / 300, until=1.2 * DAY),
        Source("h2/again/1", "h2", 1 / 500, restarts=(Restart(1.7 * DAY),)),
        Source("h3/outage/1", "h3", 1 / 900, bursts=(Burst(1.99 * DAY, 60, 2000),)),
        *reporters(("h1", "h2", "h3"), 1 / 1500, since=20),
    )
    return Fleet(
        ("h1", "h2", "h3"),
        sources,
        duration=4.9 * DAY,
        start=START,
        losses=(
            Loss(None, "h1/evening/1", 0.98 * DAY + 30, 1 * DAY, every=1),
            Loss(None, "h1/evening/1", 3.2 * DAY + 50, 4 * DAY, every=1),
            Loss(None, "h1/bccnd/1", 0.97 * DAY, 1.3 * DAY, every=1),
            Loss(None, "h1/steady/1", 2.4 * DAY, 2.4 * DAY + 60, every=1),
            Loss(None, "h2/ends/1", 1.1 * DAY, 2 * DAY, every=1),
            Loss(None, "h2/again/1", 0.9 * DAY, 1.1 * DAY, every=1),
            Loss(None, "h3/outage/1", 1.99 * DAY, 1.99 * DAY + 60, every=1),
            Loss("h2", "h1/steady/1", every=7),
        ),
        downs=(Down("h2", 2.6 * DAY, 2.7 * DAY),),
        offsets={"h3": 2.0},
    )


def test_files_in_any_order_and_final_days_give_the_tables_of_a_build(spark: SparkSession, tmp_path: Path) -> None:
    whole, journal = tmp_path / "whole", tmp_path / "journal"
    write(days_of_reports(), str(whole), file_rows=400)
    build(spark, str(whole), str(tmp_path / "built"))
    expected = content(tmp_path / "built")
    assert any(row[8] for row in expected["link_loss"])
    shutil.copytree(whole / "sessions", journal / "sessions")
    by_day = sorted(files(whole), key=lambda path: path.parent.name)
    shuffled = by_day[:]
    random.Random(3).shuffle(shuffled)
    third = len(shuffled) // 3
    for name, chunks, final_after in (
        ("shuffled", (shuffled[:third], shuffled[third : 2 * third], shuffled[2 * third :]), 0.0),
        ("final", [[path for path in by_day if path.parent.name == day] for day in days_in(by_day)], DAY),
    ):
        shutil.rmtree(journal / "obs", ignore_errors=True)
        (journal / "obs").mkdir()
        for chunk in chunks:
            for path in chunk:
                arrive(whole, journal, path)
            once(spark, str(journal), str(tmp_path / name), final_after=final_after)
        found = content(tmp_path / name)
        for table, rows in expected.items():
            assert found[table] == rows, (name, table)


def days_in(paths: list[Path]) -> list[str]:
    return sorted({path.parent.name for path in paths})


def test_a_report_tells_what_was_sent_by_then() -> None:
    fleet = Fleet(("a",), (Source("a/x/1", "a", 1, start=5), *reporters(("a",))), 25)
    simulation = Simulation(fleet)
    reports = [row for row in simulation.heard("a") if (row.row.chan or "").startswith("bccn/report/")]
    assert [line for line in (reports[1].row.payload or b"").splitlines() if b"a/x" in line] == [b"sent a/x/1 5 15"]
