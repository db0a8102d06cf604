"""`make demo` shows what it says and leaves nothing behind; `make demo-fleet` finds its faults, `make soak` none."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT, need_others, need_root
from tools.soak.__main__ import soak
from tools.soak.local import attack


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for that of a socket, which Linux limits to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="demo") as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_shows_the_main_job_and_leaves_nothing_behind(tmp_path: Path, short_folder: Path) -> None:
    folder, page = short_folder, tmp_path / "page"
    environment = {**os.environ, "DEMO_PAUSE": "0", "TMPDIR": str(folder), "DEMO_PAGE": str(page), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for part in (
        "MSG demo/temperature 21.5",
        *(f'verdict="{name}"}} 0 → 1' for name in ("duplicate", "integrity_failed", "length_mismatch")),
        "C │ relay02/sensor/77 !demo01/subscribe/* for you alone",
        "socat │ MSG ! lights out at ten",
        "'alarm/fire' is not permitted",
        "needs attention",
        "360 came through the cable, 40 were lost",
        "demo02 loses 9.8 % (39 of 399) of what relay02 sends",
        f"{page}/index.html",
    ):
        assert part in done.stdout, done.stdout
    assert list(folder.iterdir()) == []
    reported = (page / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "10 % (40 of 400 messages)" in reported
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_rounds_of_everything_at_once_and_every_message_is_accounted_for(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown if it fails
    faults, run = soak(3, 60, seed, tmp_path)
    assert faults == []
    # It has done what it is there for: a daemon and a recorder were killed, a file was bad, slow clients lost messages.
    for step in ("kill", "kill recorder", "bad reload", "crowd", "bad peers", "stand still", "strangers", "datagrams"):
        assert run.chaos.done[step], step
    assert run.hosts.relay.starts == 3
    assert sum(one.reported for one in run.witnesses if one.slow) > 0
    assert sum(one.reported for one in run.witnesses if not one.slow) == 0
    assert "passed" in (tmp_path / "soak.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hostile_user_of_this_host_holds_up_nobody_else() -> None:
    need_root("programs of other users")
    need_others()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        faults, figures = attack(Path(folder), 15.0, seed)
    assert faults == []
    assert figures["published"]
    assert figures["subscriptions"]
