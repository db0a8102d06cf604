"""`python -m tools.bench` measures what it says, and no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.harness import BIN
from tests.support import cannot_here
from tools.bench import figures
from tools.bench.cases import NATS, REDIS
from tools.bench.growth import GROWTH
from tools.bench.programs import ROOT, CannotBuild, build

#: whatever others do meanwhile, and once: it is not the figures that are tested
ANYHOW = ("--quick", "--foreign", "1000")
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


class Done(NamedTuple):
    """What a bench has left."""

    status: int
    errors: str
    found: dict[str, Any]

    def points(self) -> dict[tuple[str, str, int], dict[str, Any]]:
        return {(row["axis"], row["line"], row["x"]): row for row in self.found["points"]}


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    try:
        build(ROOT / "build/bench")
    except CannotBuild as error:
        cannot_here(str(error))


def bench(folder: Path, *arguments: str, name: str = "bench") -> Done:
    command = [sys.executable, "-m", "tools.bench", "--out", str(folder), *ANYHOW, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    file = folder / f"{name}.json"
    return Done(done.returncode, done.stderr, json.loads(file.read_text()) if file.exists() else {})


@pytest.mark.slow
def test_a_quick_run_has_a_figure_for_everything_and_loses_nothing(tmp_path: Path) -> None:
    cases = ["floor_hmac", "bccnd", "publish_floor", "publish"]
    cases += [name for name, peer in (("redis", REDIS), ("nats", NATS)) if peer.program][:1]
    file = tmp_path / "figures.json"
    done = bench(tmp_path, "--fan-out", "1,2", "--cases", ",".join(cases), "--figures", str(file))
    assert done.status == 0, done.errors
    points = done.points()
    assert set(points) == {(mode, case, n) for case in cases for n in (1, 2) for mode in ("saturated", "paced")}
    assert (done.found["refused"], done.found["left_out"]) == ([], {})
    for (mode, _, _), row in points.items():
        assert row["lost"] == {"median": 0, "least": 0, "most": 0}
        for name in ["cpu_ns", "clients_ns", "messages_per_second", "rss_kib"] + ["p50_us"] * (mode == "paced"):
            assert row[name]["median"] > 0, name
    assert set(json.loads(file.read_text())["bench"]["cpu_ns"]["paced"]) == set(cases)


@pytest.mark.slow
def test_a_case_that_loses_messages_is_refused_and_has_no_figures(tmp_path: Path) -> None:
    daemon = tmp_path / "forgetful"
    daemon.write_text(FORGETFUL.format(python=sys.executable, bccnd=str(BIN / "bccnd")))
    daemon.chmod(0o755)
    few = ("--fan-out", "1", "--axes", "saturated", "--tries", "2")
    done = bench(tmp_path / "out", *few, "--cases", "floor_hmac,bccnd", "--daemon", str(daemon))
    assert done.status == 1
    assert set(done.points()) == {("saturated", "floor_hmac", 1)}
    assert [one["line"] for one in done.found["refused"]] == ["bccnd"]


@pytest.mark.slow
def test_each_point_of_what_grows_is_measured(tmp_path: Path) -> None:
    axes = ["patterns", "sources", "burst"]
    done = bench(tmp_path, "--axes", ",".join(axes))
    assert done.status == 0, done.errors
    expected = [point for axis in axes for point in GROWTH[axis].points(True)]
    assert set(done.points()) == {(point.axis, point.line, point.x) for point in expected}
    for run in (run for run in done.found["runs"] if not run["refused"]):
        assert run["cpu_ns"] > 0
        if run["axis"] == "burst":
            assert 1000 < run["held"] < run["messages"]  # more was sent than there is room for
        else:
            assert run["lost"] == run["bad"] == 0


@pytest.mark.slow
def test_python_programs_are_measured_and_their_losses_counted(tmp_path: Path) -> None:
    done = bench(tmp_path, "--clients", "--libraries", "bccnd", name="clients")
    assert done.status == 0, done.errors
    figures = done.found["figures"]
    assert len(figures) == 4
    assert all(one["costs"] and one["lost"] >= 0 and not one["refused"] for one in figures.values())


def test_a_whole_run_replaces_a_section_and_a_part_of_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    whole: dict[str, Any] = {"about": {"date": "2026-01-01"}, "cpu_ns": {"bccnd": {"1": [2]}, "nats": {"1": [1]}}}
    assert figures.store(file, {"bench": whole}) == []
    part = {"about": {"date": "2026-02-02"}, "cpu_ns": {"bccnd": {"1": [5]}}}
    assert figures.store(file, {"bench": part}) == ["bench: cpu_ns nats 1"]
    assert json.loads(file.read_text()) == {"bench": whole}
