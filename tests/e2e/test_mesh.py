"""Five segments in a full mesh, two bridges on each: every message at most once, and once where nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.e2e.harness import wait
from tests.e2e.meshes import Meshwork, amplification, live
from tools.bench.mesh_topology import mesh

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: messages a second of all hosts together: each becomes some 35 messages over links of a full mesh
RATE = 60.0


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meshwork]:
    """Every segment beside every other, on two planes."""
    yield from live(mesh(5, 2), tmp_path_factory.mktemp("mesh"))


@pytest.fixture(autouse=True)
def _mended(full: Meshwork) -> Iterator[None]:
    yield
    full.mend()


def test_in_a_full_mesh_everybody_gets_everything_once_at_the_price_of_the_formula(full: Meshwork) -> None:
    amplification(full, RATE)


def test_with_losses_everywhere_nobody_gets_anything_twice(full: Meshwork) -> None:
    full.lose_on_segments(5)
    full.lose_on_links(1)
    output = full.say(full.hosts, 6, RATE)
    full.settle(output)
    full.lose_on_segments(0)
    full.lose_on_links(0)
    full.at_most_once()
    missed = len(full.never(output)) / len(output) / len(full.hosts)
    assert 0 < missed < 0.2, f"{missed:.1%} did not arrive"
    full.exchange(full.hosts, 2, RATE)


def test_with_a_cable_pulled_and_a_link_cut_the_other_bridges_carry_everything(full: Meshwork) -> None:
    dead, deaf = full.hosts["s0b0"], full.hosts["s1b1"]
    full.cable(dead, "down")
    full.lose_on_links(100, deaf.name)
    output = full.exchange(full.hosts, 6, RATE)
    full.cable(dead, "up")
    full.lose_on_links(0)
    full.wait_for_links()
    full.exchange(full.hosts, 4, RATE, output)


def test_a_bridge_that_is_killed_is_not_missed_and_one_that_comes_back_repeats_nothing(full: Meshwork) -> None:
    victim = full.hosts["s2b0"]
    others = [name for name in full.hosts if name != victim.name]
    output = full.say(others, 2, RATE)
    victim.kill()
    output += full.say(others, 4, RATE)
    full.settle(output, [victim.name])
    full.exactly_once(output, [victim.name])
    victim.start()
    full.wait_for_links()
    wait(lambda: victim.drain() or victim.interrupted, "the program to be connected again")
    full.exchange(full.hosts, 4, RATE)


def test_a_daemon_and_a_gateway_that_stood_still_for_five_seconds_repeat_nothing(full: Meshwork) -> None:
    daemon, [gateway] = full.hosts["s3b0"], full.hosts["s4b1"].gateways()
    speakers = [name for name in full.hosts if name != daemon.name]
    daemon.signal(signal.SIGSTOP)
    os.kill(gateway, signal.SIGSTOP)
    began = time.monotonic()
    output = full.say(speakers, 7, RATE / 3)
    full.settle(output, [daemon.name])
    time.sleep(max(0.0, began + 5.0 - time.monotonic()))
    daemon.signal(signal.SIGCONT)
    os.kill(gateway, signal.SIGCONT)
    full.exchange(speakers, 2, RATE, output)


def test_what_links_bring_when_everybody_has_fallen_silent_is_no_news(full: Meshwork) -> None:
    full.lose_on_segments(15)
    full.hold_links(held=True)
    output = full.say(full.hosts, 4, RATE * 2)
    full.settle(output, quiet=2.5)
    full.lose_on_segments(0)
    full.hold_links(held=False)
    full.settle(output, quiet=2.0)
    full.at_most_once()
