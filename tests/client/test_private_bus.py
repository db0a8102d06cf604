"""`bccnd.testing` in a project of a user: each test has a bus of its own, which ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support import PATIENCE, wait

_PROGRAM: Final = """
import bccnd

with bccnd.connect() as bus:
    bus.subscribe("door/")
    for message in bus:
        bus.publish("alarm/" + message.chan, message.payload)
"""
_CONFTEST: Final = 'pytest_plugins = ["bccnd.testing"]'
_TESTS: Final = """
import subprocess
import sys

import bccnd
import bccnd.testing
import pytest


def test_a_program_that_is_started(bus):
    alarms = bus.connect()
    alarms.subscribe("alarm/")
    program = subprocess.Popen([sys.executable, "program.py"])
    try:
        bus.wait_for_receivers("door/7")
        bus.connect().publish("door/7", "open")
        message = alarms.receive(timeout=10)
        assert (message.chan, message.text) == ("alarm/door/7", "open")
        assert message.src.startswith("test/")
    finally:
        program.terminate()
        program.wait(10)


def test_other_hosts_are_heard_and_other_buses_are_not(bus):
    with pytest.raises(TimeoutError):
        bus.wait_for_receivers("door/7", timeout=0)
    other = bus.add_host("relay02")
    inbox = other.connect()
    inbox.subscribe("door/")
    other.wait_for_receivers("door/7")
    with bccnd.testing.private_bus() as stranger:
        stranger.connect().publish("door/7", "of another bus")
    bus.connect().publish("door/7", "shut")
    assert inbox.receive(timeout=10).text == "shut"
    with bccnd.Endpoint("relay03/sensor/7", bus.address, bus.port) as sensor:
        sensor.send("door/7", b"open")
    assert inbox.receive(timeout=10).src == "relay03/sensor/7"


def test_sections_of_the_configuration():
    with bccnd.testing.private_bus(access=[{"publish": ["door/"]}]) as bus:
        client = bus.connect()
        client.publish("alarm/fire", "")
        assert [refusal.reason for refusal in client.sync()] == ["not_permitted"]
    with pytest.raises(bccnd.BccndError, match="dedupp"), bccnd.testing.private_bus(dedupp={}):
        pass
"""
_KILLED: Final = """
import os
import signal


def test_that_is_killed(bus):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for that of a socket, which Linux limits to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="bus") as name:
        yield Path(name)


def run_pytest(folder: Path, temporary: Path, tests: str) -> subprocess.CompletedProcess[str]:
    for name, text in (("program.py", _PROGRAM), ("conftest.py", _CONFTEST), ("test_program.py", tests)):
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(folder), "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE * 2,
    )


def processes_of(folder: Path) -> list[Path]:
    """The processes whose command line names a folder."""
    paths = [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [path for path in paths if str(folder).encode() in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def test_tests_of_a_user_have_private_buses(tmp_path: Path, short_folder: Path) -> None:
    done = run_pytest(tmp_path, short_folder, _TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert list(short_folder.iterdir()) == []
    assert processes_of(short_folder) == []


def test_a_daemon_ends_even_if_its_test_is_killed(tmp_path: Path, short_folder: Path) -> None:
    done = run_pytest(tmp_path, short_folder, _KILLED)
    assert done.returncode < 0, done.stdout + done.stderr
    wait(lambda: not processes_of(short_folder), "the daemon to end")
