"""`python -m tools.bench` measures what it says, and no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import cannot_here
from tools.bench.programs import ROOT, CannotBuild, build
from tools.bench.relays import RELAYS


@pytest.mark.slow
def test_a_quick_run_has_a_figure_for_everything(tmp_path: Path) -> None:
    try:
        build(ROOT / "build/bench")
    except CannotBuild as error:
        cannot_here(str(error))
    cases = ["floor_hmac", "bccnd", "publish_floor", "publish"]
    cases += [name for name in ("redis", "nats") if RELAYS[name].program][:1]
    file = tmp_path / "figures.json"
    options = ["--quick", "--x", "1,8", "--only", ",".join(cases), "--figures", str(file)]
    command = [sys.executable, "-m", "tools.bench", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    sections = json.loads(file.read_text())
    assert set(sections) == {"saturated", "paced"}
    for mode, names in (("saturated", ["cpu_ns", "resident_mb"]), ("paced", ["cpu_ns", "p50_us"])):
        for name in names:
            values = sections[mode][name]
            assert {line: set(of_line) for line, of_line in values.items()} == {case: {"1", "8"} for case in cases}
            assert all(value > 0 for of_line in values.values() for value in of_line.values()), name
