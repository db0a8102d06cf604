"""Child processes: real ones that end, fail, refuse to run, and end with the daemon."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bccnd.net import process_supervisor
from bccnd.net.loop import READABLE, Loop, first_served
from bccnd.net.process_supervisor import ChildProcess
from bccnd.version import VERSION
from tests.limits import descriptors, descriptors_left
from tests.support import turn, turn_until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_supervisor, "MIN_PAUSE", 0.02)
    monkeypatch.setattr(process_supervisor, "MAX_PAUSE", 0.08)


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def started(loop: Loop, text: str) -> ChildProcess:
    """A child that runs a shell, and whose end is looked after."""
    program = ChildProcess(loop, "nng", shell(text))
    program.start()
    return program


def alive(pid: int) -> bool:
    """Whether a process runs: it is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def childless() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def stays_away(loop: Loop, program: ChildProcess) -> bool:
    """Whether it is not started again, which would take less than this time."""
    deadline = time.monotonic() + 0.2
    turn_until(loop, lambda: time.monotonic() > deadline, "some time to pass")
    return (program.starts, program.pid) == (1, 0)


def test_a_child_that_ends_is_restarted_after_pauses(
    loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = started(loop, f"echo >> {tmp_path}/starts; [ -e {tmp_path}/kill ] && kill -KILL $$; exit 3")
    turn_until(loop, lambda: program.starts == 5, "the fifth start")
    (tmp_path / "kill").touch()
    turn_until(loop, lambda: "SIGKILL" in caplog.text, "an end by a signal")
    program.stop()
    assert len((tmp_path / "starts").read_text().splitlines()) == program.starts
    pauses = [line.getMessage().partition("next attempt in ")[2].split()[0] for line in caplog.records]
    assert pauses[:4] == ["0.02", "0.04", "0.08", "0.08"]
    assert "exit code 3" in caplog.text


def test_a_child_that_exits_with_no_retry_is_not_restarted(loop: Loop) -> None:
    program = started(loop, "exit 2")
    turn_until(loop, lambda: not program.pid, "its end")
    assert stays_away(loop, program)


def test_a_failing_start_is_logged_and_retried(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    program = ChildProcess(loop, "nng", ["/there/is/no/such/program"])
    program.start()
    assert "cannot start (No such file or directory)" in caplog.text
    before = descriptors()
    turn_until(loop, lambda: caplog.text.count("cannot start") > 3, "further attempts")
    program.stop()
    assert descriptors() == before


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_without_descriptors_the_start_is_retried_and_no_process_remains(
    loop: Loop, spare: int, caplog: pytest.LogCaptureFixture
) -> None:
    program = ChildProcess(loop, "nng", shell("exec sleep 100"))
    before = descriptors()
    with descriptors_left(spare):
        program.start()
    assert program.pid == 0
    assert "cannot start (Too many open files)" in caplog.text
    turn_until(loop, lambda: program.pid, "the next attempt")
    pid = program.pid
    program.stop()
    turn_until(loop, lambda: not Path(f"/proc/{pid}").exists(), "its end")
    turn_until(loop, childless, "the end of all attempts")
    assert descriptors() == before


def test_a_stopped_child_ends_and_is_reaped(loop: Loop) -> None:
    program = started(loop, "exec sleep 100")
    pid = program.pid
    assert alive(pid)
    open_before = descriptors()
    program.stop()
    turn_until(loop, lambda: not os.path.exists(f"/proc/{pid}"), "the reaping")
    assert len(open_before - descriptors()) == 2
    assert stays_away(loop, program)


def test_a_child_stopped_during_its_pause_is_not_restarted(loop: Loop) -> None:
    program = started(loop, "exit 1")
    turn_until(loop, lambda: not program.pid, "its end")
    program.stop()
    assert stays_away(loop, program)


def test_an_event_of_a_child_that_was_replaced_does_not_wait_for_its_successor(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    # A reload replaces a child in a round in which its end is reported too: the successor's pidfd has its number.
    old = ChildProcess(loop, "nng", shell("exit 0"))
    new = ChildProcess(loop, "nng", shell("exec sleep 10"))
    out, into = os.pipe()

    def reload(_events: int) -> None:
        os.read(out, 1)
        old.stop()
        new.start()

    loop.watch(out, READABLE, reload)
    while not first_served(loop.rounds + 1, 2):  # of two that are ready, the second one is served first then
        turn(loop)
    old.start()
    number = old._pidfd
    select.select([number], [], [])
    os.write(into, b"x")
    turn(loop)
    assert (new._pidfd, caplog.text) == (number, "")
    pid = new.pid
    assert alive(pid)
    new.stop()
    turn_until(loop, lambda: not Path(f"/proc/{pid}").exists(), "its end")
    loop.unwatch(out)
    os.close(out)
    os.close(into)


def test_an_event_without_an_end_changes_nothing(loop: Loop) -> None:
    program = started(loop, "exec sleep 10")
    pid = program.pid
    program._on_exit(READABLE)
    assert (program.pid, alive(pid)) == (pid, True)
    program.stop()
    turn_until(loop, lambda: not Path(f"/proc/{pid}").exists(), "its end")


def test_a_child_that_the_kernel_has_reaped_is_restarted(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    # Whoever ignores SIGCHLD passes that on to the programs it starts.
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        program = started(loop, "exit 0")
        turn_until(loop, lambda: caplog.text.count("next attempt") == 3, "two further starts")
        program.stop()
        turn(loop, 3)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_its_standard_input_ends_with_the_daemon(loop: Loop, tmp_path: Path) -> None:
    # A daemon in small, which starts a program that ends with its input, and is killed.
    pid_file = tmp_path / "pid"
    code = (
        "import time\n"
        "from bccnd.net.process_supervisor import ChildProcess\n"
        "from bccnd.net.loop import Loop, first_served\n"
        f"program = ChildProcess(Loop(), 'nng', ['/bin/cat'])\nprogram.start()\n"
        f"open({str(pid_file)!r}, 'w').write(f'{{program.pid}}\\n')\n"
        "time.sleep(100)\n"
    )
    daemon = os.posix_spawn(sys.executable, [sys.executable, "-c", code], {**os.environ})
    turn_until(loop, lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), "the start")
    pid = int(pid_file.read_text())
    assert alive(pid)
    os.kill(daemon, signal.SIGKILL)
    os.waitpid(daemon, 0)
    turn_until(loop, lambda: not alive(pid), "its end")


def test_children_do_not_inherit_the_managers_variables(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "@x")
    monkeypatch.setenv("WATCHDOG_USEC", "1")
    monkeypatch.setenv("KEPT", "1")
    program = started(loop, f"env > {tmp_path}/env; exit 2")
    turn_until(loop, lambda: not program.pid, "its end")
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "KEPT" in names
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC"}


def test_a_module_runs_with_the_same_interpreter() -> None:
    command = process_supervisor.python_command("bccnd.cli.bccnd_main", "--version")
    assert os.path.realpath(command[0]) == os.path.realpath(sys.executable)
    assert subprocess.run(command, env={}, stdout=subprocess.PIPE, check=True).stdout == f"bccnd {VERSION}\n".encode()
