"""What reports tell of in the tables: tails and outages that no receiver saw are lost, exactly and once."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline.driver.build import build
from bccnd.pipeline.driver.incremental import once
from examples.fleet_model import Burst, Down, Fleet, Late, Loss, Recording, Restart, Source
from examples.simulation import Simulation, write
from tests.pipeline.fleets import causes, check
from tests.pipeline.threedays import DAY, START, arrive, content, files
from tests.pipeline.truth import Truth

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
    links = {(row.host, row.src): row for row in result.tables["link_loss"].groupBy("host", "src").agg(*sums).collect()}
    for number, source in enumerate(fleet.sources[:2]):
        sent = sum(message.source == number for message in simulation.sent)
        for host in HOSTS:
            row = links[host, source.src]
            assert row.seen + row.lost_here + row.lost_everywhere == row.expected == sent
    assert links["a", "a/burst/1"].lost_everywhere == 500
    assert links["c", "b/outage/1"].lost_everywhere > 20_000
    assert set(causes(result).values()) == {"first"}


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
    """Three hosts for four days: an evening's tail that is reported on the next day only, tails of sources that end or
    go on, and outages over midnight."""
    sources = (
        Source("h1/steady/1", "h1", 1 / 900, bursts=(Burst(1.4 * DAY, 60, 1500),)),
        Source("h1/evening/1", "h1", 0, bursts=(Burst(0.98 * DAY, 60, 40), Burst(3.2 * DAY, 60, 40))),
        Source("h2/ends/1", "h2", 1 / 600, until=0.9 * DAY),
        Source("h2/again/1", "h2", 1 / 800, restarts=(Restart(1.7 * DAY),)),
        Source("h3/outage/1", "h3", 1 / 900, bursts=(Burst(1.99 * DAY, 60, 2000),)),
        *reporters(("h1", "h2", "h3"), 1 / 3000, since=20),
    )
    return Fleet(
        ("h1", "h2", "h3"),
        sources,
        duration=3.4 * DAY,
        start=START,
        losses=(
            Loss(None, "h1/evening/1", 0.98 * DAY + 30, DAY, every=1),
            Loss(None, "h1/evening/1", 3.2 * DAY + 50, 4 * DAY, every=1),
            Loss(None, "h1/bccnd/1", 0.97 * DAY, 1.1 * DAY, every=1),
            Loss(None, "h1/steady/1", 1.4 * DAY, 1.4 * DAY + 60, every=1),
            Loss(None, "h2/ends/1", 0.8 * DAY, DAY, every=1),
            Loss(None, "h2/again/1", 0.9 * DAY, 1.1 * DAY, every=1),
            Loss(None, "h3/outage/1", 1.99 * DAY, 1.99 * DAY + 60, every=1),
            Loss("h2", "h1/steady/1", every=7),
        ),
        downs=(Down("h2", 1.6 * DAY, 1.65 * DAY),),
        offsets={"h3": 2.0},
    )


def test_files_in_any_order_give_the_tables_of_a_build(spark: SparkSession, tmp_path: Path) -> None:
    whole, journal, tables = tmp_path / "whole", tmp_path / "journal", tmp_path / "tables"
    simulation = write(days_of_reports(), str(whole), file_rows=400)
    build(spark, str(whole), str(tmp_path / "built"))
    expected = content(tmp_path / "built")
    assert {row[:-1] for row in expected["missed"] if row[4] is None}
    assert len({tail.lost for tail in Truth(simulation).tails.values()}) > 3
    shuffled = files(whole)
    random.Random(3).shuffle(shuffled)
    shutil.copytree(whole / "sessions", journal / "sessions")
    (journal / "obs").mkdir()
    for chunk in (shuffled[::2], shuffled[1::2]):
        for path in chunk:
            arrive(whole, journal, path)
        once(spark, str(journal), str(tables))
    assert content(tables) == expected


def test_days_that_become_final_give_the_tables_of_a_build(spark: SparkSession, tmp_path: Path) -> None:
    whole, journal, tables = tmp_path / "whole", tmp_path / "journal", tmp_path / "tables"
    write(days_of_reports(), str(whole), file_rows=400)
    build(spark, str(whole), str(tmp_path / "built"))
    shutil.copytree(whole / "sessions", journal / "sessions")
    for days in (("2026-03-01", "2026-03-02", "2026-03-03"), ("2026-03-04",)):
        for path in files(whole):
            if path.parent.name.removeprefix("day=") in days:
                arrive(whole, journal, path)
        once(spark, str(journal), str(tables), final_after=1)
    assert content(tables) == content(tmp_path / "built")


def test_a_report_tells_what_was_sent_by_then() -> None:
    fleet = Fleet(("a",), (Source("a/x/1", "a", 1, start=5), *reporters(("a",))), 25)
    simulation = Simulation(fleet)
    reports = [row for row in simulation.heard("a") if (row.row.chan or "").startswith("bccn/report/")]
    assert [line for line in (reports[1].row.payload or b"").splitlines() if b"a/x" in line] == [b"sent a/x/1 5 16"]
