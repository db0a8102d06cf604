"""`python -m tools.bench` measures what it says, and no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import BIN
from tests.support import cannot_here
from tools.bench import figures
from tools.bench.axes import GROWTH, select
from tools.bench.programs import ROOT, CannotBuild, build
from tools.bench.relays import RELAYS

#: starts bccnd with a receive buffer that holds fewer datagrams than are sent at once
FORGETFUL = """#!{python}
import json, os, sys
with open(sys.argv[2]) as file:
    settings = json.load(file)
settings["segments"][0]["receive_buffer"] = "4KiB"
with open(sys.argv[2], "w") as file:
    json.dump(settings, file)
os.execv({bccnd!r}, [{bccnd!r}, "--config", sys.argv[2]])
"""


@pytest.fixture(scope="module")
def _programs() -> None:
    try:
        build(ROOT / "build/bench")
    except CannotBuild as error:
        cannot_here(str(error))


def bench(folder: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Run a bench; return its status, its output and the sections of figures that it has written."""
    file = folder / "figures.json"
    command = [sys.executable, "-m", "tools.bench", "--quick", "--figures", str(file), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout + done.stderr, json.loads(file.read_text())


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
def test_a_quick_run_has_a_figure_for_everything(tmp_path: Path) -> None:
    cases = ["floor_hmac", "bccnd", "publish_floor", "publish"]
    cases += [name for name in ("redis", "nats") if RELAYS[name].program][:1]
    status, output, sections = bench(tmp_path, "--x", "1,8", "--only", ",".join(cases))
    assert status == 0, output
    assert set(sections) == {"saturated", "paced"}
    for mode, names in (("saturated", ["cpu_ns", "resident_mb"]), ("paced", ["cpu_ns", "p50_us"])):
        for name in names:
            values = sections[mode][name]
            assert {line: set(of_line) for line, of_line in values.items()} == {case: {"1", "8"} for case in cases}
            assert all(value > 0 for of_line in values.values() for value in of_line.values()), name


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
def test_a_relay_that_loses_messages_is_refused(tmp_path: Path) -> None:
    daemon = tmp_path / "forgetful"
    daemon.write_text(FORGETFUL.format(python=sys.executable, bccnd=str(BIN / "bccnd")))
    daemon.chmod(0o755)
    few = ("--x", "1", "--axes", "saturated")
    status, output, sections = bench(tmp_path, *few, "--only", "floor_hmac,bccnd", "--daemon", str(daemon))
    assert status == 1, output
    assert set(sections["saturated"]["cpu_ns"]) == {"floor_hmac"}


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
def test_each_point_of_what_grows_is_measured(tmp_path: Path) -> None:
    axes = ["patterns", "sources", "direct", "burst"]
    status, output, sections = bench(tmp_path, "--axes", ",".join(axes))
    assert status == 0, output
    for name in axes:
        expected = {(point.line, str(point.x)) for point in select(GROWTH[name], [], [], quick=True)}
        expected |= {(point.first, str(point.x)) for point in select(GROWTH[name], [], [], quick=True) if point.first}
        costs = sections[name]["cpu_ns"]
        assert {(line, x) for line, of_line in costs.items() for x in of_line} == expected
        assert all(cost > 0 for of_line in costs.values() for cost in of_line.values())
    assert all(1000 < held < 200_000 for held in sections["burst"]["held"]["bccnd"].values())


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
def test_python_programs_and_an_idle_daemon_are_measured(tmp_path: Path) -> None:
    status, output, sections = bench(tmp_path, "--axes", "programs,idle", "--only", "bccnd", "--x", "0")
    assert status == 0, output
    assert set(sections["programs"]["us"]) == {"slow", "fast", "backlog", "publish"}
    assert sections["idle"]["resident_mb"]["bccnd"]["0"] > 1


def test_only_a_whole_run_replaces_a_section(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    whole: dict[str, Any] = {"about": {"date": "2026-01-01"}, "cpu_ns": {"bccnd": {"1": 2}, "nats": {"1": 1}}}
    assert figures.store(file, {"saturated": whole}) == []
    part = {"about": {"date": "2026-02-02"}, "cpu_ns": {"bccnd": {"1": 5}}}
    assert figures.store(file, {"saturated": part}) == ["saturated: cpu_ns nats 1"]
    assert json.loads(file.read_text()) == {"saturated": whole}
