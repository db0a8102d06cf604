"""`make demo` shows what it says and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
