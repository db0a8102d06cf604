"""The simulation: some fleets, exact replay, and the places of the faults that it has to find."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import ROOT, cannot_here
from tools.namespaces import namespaces_permitted
from tools.simulate import units

#: seconds: a hang is found by then, and a busy machine takes many times as long as a quiet one
LIMIT = 900.0
pytestmark = pytest.mark.timeout(LIMIT + 60)


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run fleets."""
    if not namespaces_permitted():
        cannot_here("a fleet takes a network namespace of its own")
    if not units.has_room():
        cannot_here("not root, and net.core.rmem_max is small: fleets need room in receive buffers")
    command = [sys.executable, "-m", "tools.simulate", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.parametrize("fleets", ["2", pytest.param("20", marks=pytest.mark.slow)])
def test_fleets_keep_all_invariants_and_replay_exactly(fleets: str) -> None:
    arguments = ("--seed", "1", "--fleets", fleets, "--length", "130")
    with ThreadPoolExecutor() as pool:  # at once: what else the machine does must not matter
        ends = list(pool.map(lambda _: simulate(*arguments), range(2)))
    for done in ends:
        assert done.returncode == 0, done.stdout + done.stderr
    digests = [re.findall(r"(\d+) events, (\d+) faults injected, digest (\w+)", done.stdout) for done in ends]
    assert digests[0] == digests[1]
    assert int(digests[0][0][0]) > 0


@pytest.mark.skipif("CI" in os.environ, reason="CI judges a change, and is never red by chance")
def test_a_fresh_fleet_keeps_all_invariants() -> None:
    done = simulate("--fleets", "1", "--length", "130")
    assert done.returncode == 0, done.stdout + done.stderr


def test_known_faults_still_have_their_place() -> None:
    code = "from tools.simulate.known_faults import FAULTS, install\nfor one in FAULTS:\n    install(one)"
    variables = {**os.environ, "BCCND_CORE": "python"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=variables, check=True)


def test_a_known_fault_is_found() -> None:
    done = simulate("--fault", "report_of_others", "--fleets", "3", "--length", "130", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
