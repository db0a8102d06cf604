"""What a test has started or opened is gone when it ends, however it ends, and a test fails that leaves something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.isolation import GUARDED
from tests.support import PATIENCE, ROOT, need_root, wait

#: a process with a child, and another one that has left its group and its parent
_START: Final = """
import os, signal, subprocess, sys, tempfile, time
from pathlib import Path
import pytest

MARK = os.environ["MARK"]

KEPT = []

def start():
    KEPT.append(subprocess.Popen(["sh", "-c", f"sleep 1000.{MARK} & wait"]))
    subprocess.run(["sh", "-c", f"setsid sleep 1000.{MARK} >/dev/null 2>&1 & exit"])
"""


def run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a test file in a test process of its own, guarded for itself; ``MARK`` is in its commands."""
    file = folder / "test_it.py"
    file.write_text(_START + test)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", GUARDED))}
    environment |= {"MARK": str(os.getpid()), "TMPDIR": str(folder), "PYTEST_DEBUG_TEMPROOT": str(folder)}
    words = ["-ptests.conftest", "-pno:cacheprovider", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}"]
    # timeout(1) stays in the namespace of this process, whose guard finds it and what has come from it.
    limit = ["timeout", "--signal=KILL", f"{4 * PATIENCE:.0f}"]
    command = [*limit, sys.executable, "-m", "pytest", *words, *options, str(file)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def running() -> set[str]:
    """Commands of processes that carry the mark of this process."""
    mark = f"1000.{os.getpid()}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:1] == [b"sleep"] and mark in words:
            found.add(path.parent.name)
    return found


def test_what_replaces_things_of_a_fixture_is_looked_for_behind_the_last_test(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
pytestmark = pytest.mark.renews

@pytest.fixture(scope="module")
def wide():
    started = [subprocess.Popen(["sleep", f"1000.{MARK}"])]
    yield started
    for process in started:
        process.kill()
        process.wait(30)

@pytest.mark.parametrize("number", range(2))
def test_it(wide, number):
    wide.append(subprocess.Popen(["sleep", f"1000.{MARK}"]))

def test_last():
    KEPT.append(os.open("/dev/null", os.O_RDONLY))
""",
        "-rEF",
        "-q",
    )
    assert re.findall(r"^(ERROR|FAILED) \S+::(\w+)", done.stdout, re.MULTILINE) == [("ERROR", "test_last")], done.stdout
    assert "descriptor" in done.stdout
    assert "process" not in done.stdout


def test_leftovers_fail_a_test_and_are_ended(tmp_path: Path) -> None:
    need_root("names of network namespaces")
    done = run(
        tmp_path,
        """
@pytest.fixture(scope="module")
def wide():
    KEPT.append(os.open("/dev/null", os.O_RDONLY))
    process = subprocess.Popen(["sh", "-c", f"sleep 0.3; sleep 1000.{MARK}"], start_new_session=True)
    subprocess.run(["ip", "netns", "add", "wide"], check=True)
    yield
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    subprocess.run(["ip", "netns", "delete", "wide"], check=True)

def test_wide(wide):
    time.sleep(0.5)

def test_after(wide):
    assert subprocess.run(["true"]).returncode == 0

def test_a_cycle():
    a, b = [os.fdopen(os.open("/dev/null", os.O_RDONLY))], []
    a.append(b); b.append(a)
    a[0].close()
    pipe = subprocess.Popen(["true"])
    pipe.wait(30)

@pytest.fixture
def narrow():
    process = subprocess.Popen(["sleep", "1000"])
    yield
    process.kill()
    process.wait(30)

def test_narrow(narrow): pass
def test_left():
    start()
    KEPT.append(subprocess.Popen(["true"]))
    KEPT.append(os.open("/dev/null", os.O_RDONLY))
    tempfile.mkstemp()
    subprocess.run(["ip", "netns", "add", "left"], check=True)

def test_nothing():
    assert os.listdir("/run/netns") == ["wide"]
    assert os.listdir(tempfile.gettempdir()) == []
""",
        "-rEF",
        "-q",
    )
    assert re.findall(r"^(ERROR|FAILED) \S+::(\w+)", done.stdout, re.MULTILINE) == [("ERROR", "test_left")], done.stdout
    _, _, told = done.stdout.partition("the test leaves behind:\n")
    # In CI, pytest tells it a second time in its summary.
    kinds = Counter(line.split()[0] for line in {*told.splitlines()} if line.startswith("  "))
    assert kinds == {"process": 4, "descriptor": 2, "file": 2}, done.stdout
    assert running() == set()


@pytest.mark.parametrize(
    ("test", "options"),
    [
        pytest.param("subprocess.run(['sleep', f'1000.{MARK}'])", ["--timeout=2"], id="time limit"),
        pytest.param(
            "try: subprocess.run(['sleep', f'1000.{MARK}'])\n    finally: time.sleep(1000)", ["--timeout=2"], id="twice"
        ),
        pytest.param("request.addfinalizer(lambda: time.sleep(1000)); assert False", ["--timeout=2"], id="teardown"),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", [], id="killed"),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", ["-n", "1", "--max-worker-restart=0"], id="killed worker"),
        pytest.param("os._exit(3)", [], id="exit"),
    ],
)
def test_nothing_outlives_a_test_process(tmp_path: Path, test: str, options: list[str]) -> None:
    body = f"""
def test_it(request):
    start()
    Path(tempfile.gettempdir(), "left").touch()
    subprocess.run(["pgrep", "-cf", f"^sleep 1000.{{MARK}}"], check=True)
    {test}
"""
    done = run(tmp_path, body, *options)
    assert done.returncode != 0, done.stdout
    assert "CalledProcessError" not in done.stdout, done.stdout
    wait(lambda: not running(), "processes of a test to be gone")
    wait(lambda: not list(tmp_path.glob("bccnd-tests-*")), "temporary files of a test to be gone")
