"""Every table against the truth about fleets whose faults are known."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.fleet_model import Burst, Down, Fleet, Forged, Late, Loss, Recording, Restart, Source
from tests.pipeline.fleets import causes, check
from tests.pipeline.threedays import DAY, START
from tests.pipeline.truth import Truth
from tests.support import examples

#: a moment before midnight
BEFORE_MIDNIGHT = 1_788_047_880
HOSTS = ("a", "b", "c")


def reporters(hosts: tuple[str, ...], rate: float = 0.1, since: float = 0.0) -> tuple[Source, ...]:
    """The daemons of hosts, which send reports."""
    return tuple(
        Source(f"{host}/bccnd/1", host, rate, channels=(f"bccn/report/{host}",), since=since) for host in hosts
    )


#: more than there are bits in a number
SEVENTY_HOSTS = Fleet(
    hosts=tuple(f"h{number:02}" for number in range(70)),
    sources=(Source("h00/x/1", "h00", 1), Source("h69/y/1", "h69", 1)),
    duration=20,
    losses=(Loss("h66", probability=0.3), Loss("h62", every=3), Loss("h63", every=4)),
)
#: four days: an evening's tail that is reported on the next day only, tails of sources that end or go on, and outages
#: over midnight
DAYS_OF_REPORTS = Fleet(
    ("h1", "h2", "h3"),
    (
        Source("h1/steady/1", "h1", 1 / 900, bursts=(Burst(1.4 * DAY, 60, 1500),)),
        Source("h1/evening/1", "h1", 0, bursts=(Burst(0.98 * DAY, 60, 40), Burst(3.2 * DAY, 60, 40))),
        Source("h2/ends/1", "h2", 1 / 600, until=0.9 * DAY),
        Source("h2/again/1", "h2", 1 / 800, restarts=(Restart(1.7 * DAY),)),
        Source("h3/outage/1", "h3", 1 / 900, bursts=(Burst(1.99 * DAY, 60, 2000),)),
        *reporters(("h1", "h2", "h3"), 1 / 3000, since=20),
    ),
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


def an_hour_off(ahead: float) -> Fleet:
    """Over midnight; the wrong clock is that of the host with most rows, which others are compared with."""
    return Fleet(
        hosts=("a", "b", "c", "d"),
        sources=(Source("a/plain/1", "a", 5, heartbeat=5, copies=2), Source("b/old", "b", 3, start=1, own=False)),
        duration=300,
        start=BEFORE_MIDNIGHT,
        losses=(Loss("c", probability=0.1), Loss("d", probability=0.05), Loss(None, "a/plain/1", 118, 122, every=2)),
        offsets={"b": ahead, "c": 0.5},
        recordings={"d": (Recording(0, 200.006),)},
    )


def at_random(seed: int) -> Fleet:
    """Over midnight, with tails and outages at all receivers or one, lost reports, restarts noticed, swallowed and
    missed, copies, late messages, forgeries, a host that is down, receivers that come and go, clocks that differ, a
    source without reports, and a second segment."""
    chance = random.Random(seed)

    def gone(length: float) -> tuple[float, float]:
        start = chance.uniform(20, 260)
        return start, start + length

    sources = (
        Source("a/steady/1", "a", 3, heartbeat=5, copies=2),
        Source("b/bursts/1", "b", 0, bursts=tuple(Burst(at, 1, 300) for at in (15, *gone(60)))),
        Source("c/ends/1", "c", 7, until=chance.uniform(100, 250), restarts=(Restart(60.2),)),
        Source("a/outage/1", "a", 5, bursts=(Burst(150, 2, 2500),)),
        Source("c/old", "c", 4, start=1, own=False, restarts=(Restart(30.2, 0), Restart(60.7, 1), Restart(240.4, 1))),
        Source("far/alone", "far", 2, channels=("!", "!a/x/1", "z")),
        *reporters(HOSTS, 0.2),
    )
    losses = [Loss(None, source.src, *gone(chance.uniform(5, 60)), every=1) for source in sources[:3]]
    return Fleet(
        (*HOSTS, "d", "far"),
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
        forged=(Forged(20, 3, 9, "a/steady/1"),),
        downs=(Down("d", 190.007, 210.007),),
        offsets={"b": chance.uniform(-2, 2), "far": 100.0},
        recordings={
            "c": (Recording(0, 100.006), Recording(130.007, 300)),
            "d": (Recording(0, 70.006), Recording(71.006, 90.006, fresh=False), Recording(95.007, 300)),
        },
        segments={"far": "other"},
        sessionless=frozenset({"a"}),
    )


@pytest.mark.parametrize(
    ("fleet", "days"),
    [
        pytest.param(an_hour_off(-3600.75), 2, id="an hour behind"),
        pytest.param(SEVENTY_HOSTS, 1, id="seventy hosts"),
        pytest.param(DAYS_OF_REPORTS, 4, id="days of reports", marks=pytest.mark.slow),
        *(pytest.param(at_random(seed), 2, id=f"at random {seed}") for seed in range(2)),
    ],
)
def test_tables_are_true(fleet: Fleet, days: int, tmp_path: Path) -> None:
    simulation, rows = check(fleet, tmp_path)
    assert len(Truth(simulation).hosts) == days
    for (src, epoch), cause in causes(rows).items():
        assert cause == ("first" if epoch == 1 else "restart" if src.endswith("/old") else "jump"), src


@st.composite
def restarting(draw: st.DrawFn) -> Fleet:
    """Restarts far enough apart to be told, everything else as it comes. One receiver, e, hears all, so that there is
    evidence of every restart."""
    rate = draw(st.sampled_from((2, 7, 20)))
    moments = draw(st.lists(st.integers(1, 8), max_size=3, unique=True).map(sorted))
    source = Source(
        "a/old",
        "a",
        rate,
        start=1,
        own=draw(st.booleans()),
        copies=draw(st.integers(1, 2)),
        restarts=tuple(Restart(12 * moment + 0.05 / rate, 1) for moment in moments),
    )
    losses = [
        Loss(
            draw(st.sampled_from(("b", "c", "d"))),
            None,
            start,
            start + draw(st.integers(1, 40)),
            probability=draw(st.sampled_from((0.3, 1.0))),
        )
        for start in draw(st.lists(st.integers(0, 100), max_size=3))
    ]
    return Fleet(
        ("a", "b", "c", "d", "e"),
        (source, replace(source, src="b/steady", host="b", restarts=(), own=False)),
        110,
        seed=draw(st.integers(0, 1000)),
        losses=tuple(losses),
        offsets={host: draw(st.integers(-5, 5)) / 2 for host in ("b", "c", "d")},
        recordings={"d": (Recording(0, 31.0107), Recording(33.0107, 77.0107), Recording(80.0107, 110))},
    )


@settings(max_examples=examples(12), deadline=None)
@given(restarting())
def test_any_fleet_with_restarts_has_true_tables(fleet: Fleet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(fleet, Path(folder))
