"""`make demo` shows what it says and leaves nothing behind; `make demo-fleet` finds every fault that it has put in."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bccnd.pipeline.report.findings import LOOK, Finding
from tests.support import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_shows_the_main_job_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder, page = tmp_path / "tmp", tmp_path / "page"
    folder.mkdir()
    environment = {
        **os.environ,
        "DEMO_PAUSE": "0",
        "TMPDIR": str(folder),
        "DEMO_PAGE": str(page),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for part in (
        "MSG demo/temperature 21.5",
        *(f'verdict="{name}"}} 0 → 1' for name in ("duplicate", "integrity_failed", "length_mismatch")),
        "C │ MSG !demo01/subscribe/* for you alone",
        "socat │ MSG ! lights out at ten",
        "360 came through the cable, 40 were lost",
        f"{page}/index.html",
    ):
        assert part in done.stdout, done.stdout
    assert list(folder.iterdir()) == []
    told = (page / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "10 % (40 of 400 messages)" in told
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in running if str(tmp_path).encode() in command]


def fleet() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fleet", ROOT / "examples/fleet.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["fleet"] = module
    spec.loader.exec_module(module)
    return module


def test_a_fault_is_found_only_by_a_finding_that_names_it() -> None:
    demo = fleet()
    fault = demo.Fault("relay07 loses", "receiver", ("relay07",))
    other = Finding("receiver", LOOK, ("relay08",), "", "", "", "")
    right = Finding("receiver", LOOK, ("relay07",), "", "", "", "")
    assert demo.compare([fault], [other]) == ([(fault, None)], [other])
    assert demo.compare([fault], [other, right]) == ([(fault, right)], [other])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_fault_of_the_fleet_is_found(tmp_path: Path) -> None:
    environment = {**os.environ, "DEMO_FOLDER": str(tmp_path / "fleet"), "DEMO_MINUTES": "20", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/fleet.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 faults found" in done.stdout
    assert "and also" not in done.stdout
    assert (tmp_path / "fleet" / "page" / "index.html").stat().st_size > 100_000
