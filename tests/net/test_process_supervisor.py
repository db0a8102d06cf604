"""Child processes: real ones that end, fail, refuse to run, and end with the daemon."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from bccnd.net import process_supervisor
from bccnd.net.loop import READABLE, Loop, first_served
from bccnd.net.process_supervisor import ChildProcess
from tests.limits import descriptors, descriptors_left
from tests.support import turn, turn_until, wait


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


def gone(pid: int) -> bool:
    """Whether a process has been reaped."""
    return not Path(f"/proc/{pid}").exists()


def test_a_child_that_ends_is_restarted_after_pauses(
    loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = started(loop, f"echo >> {tmp_path}/starts; [ -e {tmp_path}/kill ] && kill -KILL $$; exit 3")
    turn_until(loop, lambda: program.starts == 5, "the fifth start")
    (tmp_path / "kill").touch()
    turn_until(loop, lambda: "SIGKILL" in caplog.text, "an end by a signal")
    program.stop()
    assert len((tmp_path / "starts").read_text().splitlines()) == program.starts
    pauses = [later.created - earlier.created for earlier, later in pairwise(caplog.records)]
    assert all(pause >= least for pause, least in zip(pauses, (0.02, 0.04, 0.08), strict=False))


@pytest.mark.parametrize(("status", "stops"), [(2, False), (1, True)], ids=["a status for no retry", "stopped"])
def test_a_child_stays_away(loop: Loop, status: int, stops: bool) -> None:
    program = started(loop, f"exit {status}")
    turn_until(loop, lambda: not program.pid, "its end")
    if stops:  # during its pause
        program.stop()
    other = started(loop, "exit 1")
    turn_until(loop, lambda: other.starts == 4, "the starts of another one")
    other.stop()
    turn_until(loop, childless, "its end")
    assert (program.starts, program.pid) == (1, 0)


def test_a_failing_start_is_logged_and_retried(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    program = ChildProcess(loop, "nng", ["/there/is/no/such/program"])
    program.start()
    assert "cannot start (No such file or directory)" in caplog.text
    before = descriptors()
    turn_until(loop, lambda: caplog.text.count("cannot start") > 3, "further attempts")
    program.stop()
    assert descriptors() == before


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_a_start_without_descriptors_is_retried(loop: Loop, spare: int, caplog: pytest.LogCaptureFixture) -> None:
    program = ChildProcess(loop, "nng", shell("exec sleep 100"))
    before = descriptors()
    with descriptors_left(spare):
        program.start()
    assert program.pid == 0
    assert "cannot start (Too many open files)" in caplog.text
    turn_until(loop, lambda: program.pid, "the next attempt")
    pid = program.pid
    program.stop()
    turn_until(loop, lambda: gone(pid), "its end")
    turn_until(loop, childless, "the end of all attempts")
    assert descriptors() == before


def test_an_event_of_a_replaced_child_is_not_its_successors(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
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
    wait(lambda: not alive(old.pid), "the end of the old one")
    os.write(into, b"x")
    turn(loop)
    assert caplog.records == []
    pid = new.pid
    assert alive(pid)
    new.stop()
    turn_until(loop, lambda: gone(pid), "its end")
    loop.unwatch(out)
    os.close(out)
    os.close(into)


def test_an_event_without_an_end_changes_nothing(loop: Loop) -> None:
    before = descriptors()
    program = started(loop, "exec sleep 10")
    pid = program.pid
    loop.soon(lambda: loop.again(tuple(map(int, descriptors() - before))))
    turn(loop)
    assert (program.pid, alive(pid)) == (pid, True)
    program.stop()
    turn_until(loop, lambda: gone(pid), "its end")


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
