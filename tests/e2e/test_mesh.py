"""Five segments in a full mesh, two bridges on each: every message once, whatever fails; losses are for the model."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests.e2e.harness import wait
from tests.e2e.mesh_topology import mesh
from tests.e2e.meshes import Meshwork, amplification, live

pytestmark = [pytest.mark.renews, pytest.mark.root, pytest.mark.slow]

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


def test_with_a_cable_pulled_and_a_link_cut_the_other_bridges_carry_everything(full: Meshwork) -> None:
    dead, deaf = full.hosts["s0b0"], full.hosts["s1b1"]
    full.cable(dead, "down")
    full.cut_links(deaf.name)
    output = full.exchange(full.hosts, 6, RATE)
    full.cable(dead, "up")
    full.cut_links()
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
