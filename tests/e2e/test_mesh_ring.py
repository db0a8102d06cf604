"""Five segments in a ring, two bridges on each, all of it real, and links that take their time: every program gets
every message at most once, whatever happens, and exactly once where nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.mesh_topology import ring
from tests.e2e.meshes import Meshwork, amplification, live

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: messages a second of all hosts together: each becomes some 15 messages over links
RATE = 60.0


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meshwork]:
    """A ring on two planes; each link takes 5 to 10 ms."""
    yield from live(ring(5, 2), tmp_path_factory.mktemp("ring"), delay=0.005)


@pytest.fixture(autouse=True)
def _mended(circle: Meshwork) -> Iterator[None]:
    yield
    circle.mend()


def test_in_a_ring_everybody_gets_everything_once_at_the_price_of_the_formula(circle: Meshwork) -> None:
    amplification(circle, RATE)


def test_links_that_stand_still_and_go_on_bring_nothing_twice(circle: Meshwork) -> None:
    circle.lose_on_segments(5)
    circle.hold_links(held=True)
    said = circle.say(circle.hosts, 6, RATE / 2)
    circle.hold_links(held=False)
    said += circle.say(circle.hosts, 2, RATE)
    circle.settle(said)
    circle.lose_on_segments(0)
    circle.at_most_once()
    circle.exchange(circle.hosts, 2, RATE)


def test_what_links_bring_when_everybody_has_fallen_silent_is_no_news(circle: Meshwork) -> None:
    """Bridges bring what they had missed to those who had not, and who have heard nothing since for longer than the
    horizon of a segment."""
    circle.lose_on_segments(15)
    circle.hold_links(held=True)
    said = circle.say(circle.hosts, 4, RATE * 2)
    circle.settle(said, quiet=2.5)
    circle.lose_on_segments(0)
    circle.hold_links(held=False)
    circle.settle(said, quiet=2.0)
    circle.at_most_once()


def test_a_ring_that_is_broken_is_a_chain_and_reaches_everybody(circle: Meshwork) -> None:
    one, other = circle.hosts["s1b0"], circle.hosts["s3b1"]
    circle.unplug(one)
    circle.unplug(other)
    said = circle.exchange(circle.hosts, 4, RATE)
    circle.plug(one)
    circle.plug(other)
    circle.wait_for_links()
    circle.exchange(circle.hosts, 4, RATE, said)
