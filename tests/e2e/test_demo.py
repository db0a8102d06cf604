"""`make demo` shows what it says and leaves nothing behind; `make demo-fleet` finds its faults, `make soak` none."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for that of a socket, which Linux limits to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="demo") as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_shows_the_job_and_leaves_nothing_behind(tmp_path: Path, short_folder: Path) -> None:
    folder, page = short_folder, tmp_path / "page"
    environment = {**os.environ, "DEMO_PAUSE": "0", "TMPDIR": str(folder), "DEMO_PAGE": str(page), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for part in (
        *(f'verdict="{name}"}} 0 → 1' for name in ("duplicate", "integrity_failed", "length_mismatch")),
        "360 came through the cable, 40 were lost",
        "(39 of 399) of what relay02 sends",
        f"{page}/index.html",
    ):
        assert part in done.stdout, done.stdout
    assert list(folder.iterdir()) == []
    assert "(40 of 400 messages)" in (page / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in running if str(folder).encode() in command]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_fault_of_the_fleet_is_found(tmp_path: Path) -> None:
    environment = {**os.environ, "DEMO_FOLDER": str(tmp_path / "fleet"), "DEMO_MINUTES": "20", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "examples.fleet"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 faults found" in done.stdout
    assert "and also" not in done.stdout
    assert (tmp_path / "fleet" / "page" / "index.html").stat().st_size > 100_000
