"""A test fails that leaves something behind, and nothing that a test process has started outlives it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.isolation import GUARDED
from tests.support import PATIENCE, ROOT, wait

#: a process with a child, and another one that has left its group and its parent
_START: Final = """
import os, signal, subprocess, tempfile
MARK = os.environ["MARK"]
KEPT = []

def start():
    KEPT.append(subprocess.Popen(["sh", "-c", f"sleep 1000.{MARK} & wait"]))
    subprocess.run(["sh", "-c", f"setsid sleep 1000.{MARK} >/dev/null 2>&1 & exit"])
"""


def run(folder: Path, test: str, *options: str) -> str:
    """Run a test file in a test process of its own, guarded for itself; ``MARK`` is in its commands."""
    file = folder / "test_it.py"
    file.write_text(_START + test)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", GUARDED))}
    environment |= {"MARK": str(os.getpid()), "TMPDIR": str(folder), "PYTEST_DEBUG_TEMPROOT": str(folder)}
    words = ["-ptests.conftest", "-pno:cacheprovider", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}"]
    # timeout(1) stays in the namespace of this process, whose guard finds it and what has come from it.
    limit = ["timeout", "--signal=KILL", f"{4 * PATIENCE:.0f}"]
    command = [*limit, sys.executable, "-m", "pytest", *words, "-q", "-rEF", *options, str(file)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout


def running() -> bool:
    """Whether a process carries the mark of this process."""
    found = subprocess.run(["pgrep", "-f", rf"^sleep 1000\.{os.getpid()}"], capture_output=True, check=False)
    return found.returncode == 0


def test_leftovers_fail_a_test_and_are_ended(tmp_path: Path) -> None:
    output = run(
        tmp_path,
        """
def test_left():
    start()
    KEPT.append(os.open("/dev/null", os.O_RDONLY))
    tempfile.mkstemp()

def test_nothing():
    assert os.listdir(tempfile.gettempdir()) == []
""",
    )
    assert re.findall(r"^(ERROR|FAILED) \S+::(\w+)", output, re.MULTILINE) == [("ERROR", "test_left")], output
    assert {line.split()[0] for line in output.splitlines() if line.startswith("  ")} >= {
        "process",
        "descriptor",
        "file",
    }
    assert not running()


@pytest.mark.parametrize(
    ("test", "options"),
    [
        pytest.param("subprocess.run(['sleep', f'1000.{MARK}'])", ["--timeout=2"], id="time limit"),
        pytest.param("request.addfinalizer(lambda: signal.pause())", ["--timeout=2"], id="teardown"),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", ["-n", "1", "--max-worker-restart=0"], id="killed worker"),
    ],
)
def test_nothing_outlives_a_test_process(tmp_path: Path, test: str, options: list[str]) -> None:
    run(tmp_path, f"def test_it(request):\n    start()\n    {test}\n", *options)
    wait(lambda: not running(), "processes of a test to be gone")
    wait(lambda: not list(tmp_path.glob("bccnd-tests-*")), "temporary files of a test to be gone")
