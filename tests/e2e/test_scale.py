"""`python -m tests.bench.scale` measures what it says and fills in a page that quotes it; no time is asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.programs import ROOT, CannotBuild, build
from tests.bench.scale_axes import AXES
from tests.support import cannot_here

PAGE = """# A page

<!-- scale:patterns -->
old
<!-- /scale -->

in between

<!-- scale:sources -->
<!-- /scale -->
"""


@pytest.fixture(scope="module")
def _programs() -> Path:
    try:
        return build(ROOT / "build/bench")
    except CannotBuild as error:
        cannot_here(str(error))


def scale(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench.scale", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
def test_a_quick_run_measures_each_point_and_fills_in_a_page(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(PAGE)
    axes = ["patterns", "sources", "burst"]
    some = ("--axes", ",".join(axes), "--quick", "--foreign", "1000")
    done = scale(*some, "--out", str(tmp_path / "out"), "--docs", str(page))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/scale.json").read_text())
    assert found["schema"] == 1
    assert found["refused"] == []
    points = [point for axis in axes for point in AXES[axis].points(True)]
    assert {(one["axis"], one["line"], one["x"]) for one in found["points"]} == {
        (point.axis, point.line, point.x) for point in points
    }
    assert all(one["cpu_ns"]["median"] > 0 for one in found["points"])
    for run in (run for run in found["runs"] if not run["refused"]):
        assert run["lost"] == run["bad"] == 0
        assert (run["held"] is not None) == (run["axis"] == "burst")
        if run["axis"] == "burst":
            assert 1000 < run["held"] < run["messages"]  # more was sent than there is room for
        else:
            assert run["rss_kib"] > 0
            assert run["clients_ns"] > 0
            assert run["sender_ns"] > 0
    text = page.read_text()
    assert "old" not in text
    assert re.search(r"# A page\n\n<!-- scale:patterns -->\n\| patterns per client \| bccnd \|\n", text)
    assert "| 10 |" in text
    assert "\n<!-- /scale -->\n\nin between\n\n<!-- scale:sources -->\n| sources |" in text
    assert f"which has no place for {', '.join(('burst', 'about'))}" in done.stderr
    assert (tmp_path / "out/scale.md").read_text() == done.stdout[:-1]
    drawn = {chart.name for chart in page.parent.glob("*.svg")}
    assert drawn == {"scaling-sources.svg"} or (not drawn and "no charts: matplotlib is missing" in done.stderr)
