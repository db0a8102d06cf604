"""`python -m tools.bench` and `tools.bench.scale` measure what they say, and no time is asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.harness import BIN
from tests.support import cannot_here
from tools.bench.cases import CASES, NATS, REDIS
from tools.bench.programs import ROOT, CannotBuild, build
from tools.bench.scale_axes import AXES
from tools.bench.tricks import TRICKS
from tools.changed_package import missing

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
    output: str
    errors: str
    found: dict[str, Any]

    def summary(self) -> dict[tuple[str, int, str], dict[str, Any]]:
        return {(row["line"], row["x"], row["axis"]): row for row in self.found["points"]}


@pytest.fixture(scope="module")
def programs() -> Path:
    try:
        return build(ROOT / "build/bench")
    except CannotBuild as error:
        cannot_here(str(error))


def bench(folder: Path, *arguments: str) -> Done:
    command = [sys.executable, "-m", "tools.bench", "--out", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    file = folder / "bench.json"
    return Done(done.returncode, done.stdout, done.stderr, json.loads(file.read_text()) if file.exists() else {})


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_a_quick_run_has_a_figure_for_everything_and_loses_nothing(tmp_path: Path) -> None:
    cases = ["floor_hmac", "bccnd"]
    cases += [name for name, peer in (("redis", REDIS), ("nats", NATS)) if peer.program][:1]
    done = bench(tmp_path, *ANYHOW, "--fan-out", "1,2", "--cases", ",".join(cases))
    assert done.status == 0, done.errors
    found, summary = done.found, done.summary()
    assert set(summary) == {(case, n, mode) for case in cases for n in (1, 2) for mode in ("saturated", "paced")}
    assert (found["refused"], found["left_out"]) == ([], {})
    positive = ["cpu_ns", "clients_ns", "messages_per_second", "rss_kib"]
    for (case, _, mode), row in summary.items():
        assert row["lost"] == {"median": 0, "least": 0, "most": 0}
        for name in positive + ["p50_us"] * (mode == "paced"):
            assert row[name]["median"] > 0, name
        assert (row["cpu_ratio"] is None) == (case == "floor_hmac")
    assert found["daemon"]["version"] == version("bccnd")
    assert (tmp_path / "bench.md").read_text() == done.output[:-1]
    assert all(f"| {CASES[case].title} | " in done.output for case in cases)


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_a_case_that_loses_messages_is_refused_and_has_no_figures(tmp_path: Path) -> None:
    daemon = tmp_path / "forgetful"
    daemon.write_text(FORGETFUL.format(python=sys.executable, bccnd=str(BIN / "bccnd")))
    daemon.chmod(0o755)
    few = ("--fan-out", "1", "--modes", "saturated", "--tries", "2")
    done = bench(tmp_path / "out", *ANYHOW, *few, "--cases", "floor_hmac,bccnd", "--daemon", str(daemon))
    assert done.status == 1
    assert set(done.summary()) == {("floor_hmac", 1, "saturated")}
    (refused,) = done.found["refused"]
    assert refused["line"] == "bccnd"
    assert re.fullmatch(r"[1-9]\d* of its deliveries lost, \d+ out of place", refused["reason"])
    assert "| bccnd | refused |" in done.output


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_a_quick_run_of_make_scale_measures_each_point_and_fills_in_a_page(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    table = "| patterns per client | bccnd |\n| ---: | ---: |\n"
    before = "# A page\n\n| other |\n| --- |\n\nin between\n\n"
    page.write_text(f"{before}{table}| 1 | old |\n\nbehind\n")
    axes = ["patterns", "sources", "burst"]
    some = ("--axes", ",".join(axes), "--quick", "--foreign", "1000")
    command = [sys.executable, "-m", "tools.bench.scale", *some, "--out", str(tmp_path / "out"), "--docs", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/scale.json").read_text())
    assert found["refused"] == []
    points = [point for axis in axes for point in AXES[axis].points(True)]
    assert {(one["axis"], one["line"], one["x"]) for one in found["points"]} == {
        (point.axis, point.line, point.x) for point in points
    }
    assert all(one["cpu_ns"]["median"] > 0 for one in found["points"])
    for run in (run for run in found["runs"] if not run["refused"]):
        assert run["lost"] == run["bad"] == 0
        if run["axis"] == "burst":
            assert 1000 < run["held"] < run["messages"]  # more was sent than there is room for
        else:
            assert run["held"] is None
            assert min(run["rss_kib"], run["clients_ns"], run["sender_ns"]) > 0
    text = page.read_text()
    assert "old" not in text
    assert text.startswith(f"{before}{table}| 1 | ")
    assert text.endswith(" |\n\nbehind\n")
    assert (tmp_path / "out/scale.md").read_text() == done.stdout[:-1]


@pytest.mark.parametrize("name", TRICKS)
def test_each_trick_can_be_undone(name: str) -> None:
    assert missing(TRICKS[name].undo) == []


@pytest.mark.slow
def test_python_programs_are_measured_and_what_they_lose_is_counted(tmp_path: Path, programs: Path) -> None:
    given = ("-m", "tools.bench", "--clients", "--libraries", "bccnd", "--out", str(tmp_path), *ANYHOW)
    done = subprocess.run([sys.executable, *given], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "clients.json").read_text())["figures"]
    assert all(one["costs"] and one["lost"] >= 0 and not one["refused"] for one in figures.values())
    assert len(figures) == 4
