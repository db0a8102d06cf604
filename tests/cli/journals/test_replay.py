"""`bccn replay`: who hears it, who does not, and what is asked before anybody does."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import bccnd
from bccnd.cli.main import main
from tests.e2e.harness import Daemon, Wire
from tests.idle import wait_until_idle
from tests.pipeline.journals import put, row, rows
from tests.support import BROADCAST, PATIENCE, ROOT, free_port

ONE = "20231114T000000Z-00000001"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    root = tmp_path / "journal"
    put(root, "a", ONE, 0, rows(0, 5))
    put(root, "a", ONE, 5, [row(5, chan="!"), row(6, verdict="stale"), row(7)._replace(payload=None), row(8, chan="c")])
    return root


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "daemon") as one:
        yield one


def bccn(*arguments: str, **more: str) -> Result:
    return CliRunner().invoke(main, arguments, **more)  # type: ignore[arg-type]


def heard(listener: bccnd.Connection, count: int) -> list[tuple[str, bytes]]:
    return [(one.chan, one.payload) for _, one in zip(range(count), listener, strict=False)]


def test_programs_of_this_host_hear_it_and_nobody_else(daemon: Daemon, journal: Path) -> None:
    with Wire(daemon.port) as wire, bccnd.connect(str(daemon.bus)) as listener:
        listener.subscribe("a/", "c")
        listener.sync()
        done = bccn("--socket", str(daemon.bus), "replay", str(journal), "--speed", "max")
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("7 messages replayed; left out: 1 whose ")
        assert "1 that were not accepted" in done.stdout
        wanted = [("a/b", f"payload {number}".encode()) for number in range(5)]
        assert heard(listener, 7) == [*wanted, ("!", b"payload 5"), ("c", b"payload 8")]
        with bccnd.connect(str(daemon.bus)) as other:
            other.publish("end", "x")
        assert b":end|" in wire.sock.recv(65536)


def test_the_pace_is_that_of_the_record(daemon: Daemon, journal: Path) -> None:
    begin = time.monotonic()
    done = bccn("--socket", str(daemon.bus), "replay", str(journal), "--speed", "20", "--channel", "a/b")
    assert done.stdout.startswith("5 messages replayed")
    assert time.monotonic() - begin >= 0.2


def test_onto_a_segment_only_where_both_options_ask_for_it(journal: Path) -> None:
    port = free_port()
    where = f"{BROADCAST}:{port}"
    with Wire(port) as wire:
        for given in (["--segment", where], ["--onto-the-network"]):
            done = bccn("replay", str(journal), *given)
            assert (done.exit_code, "needs both" in done.stderr) == (2, True)
        assert not list(wire.rest())
        wire.sock.settimeout(10)
        both = ["replay", str(journal), "--segment", where, "--onto-the-network", "--speed", "max"]
        done = bccn(*both, "--name", "me")
        assert (done.exit_code, done.stderr) == (0, "")
        found = [wire.sock.recv(65536) for _ in range(7)]
        payloads = [one.rpartition(b"|")[2] for one in found]
        assert payloads == [b"payload %d" % number for number in (0, 1, 2, 3, 4, 5, 8)]
        assert all(b"]me:" in one for one in found)
        assert bccn(*both, "--original-src").exit_code == 0
        assert b"]relay01/a/1:0:a/b|payload 0" in wire.sock.recv(65536)


@pytest.mark.slow
def test_on_a_terminal_it_asks_once_more(journal: Path) -> None:
    port = free_port()
    code = "from bccnd.cli.main import main; main()"
    command = [sys.executable, "-c", code, "replay", str(journal), "--speed", "max"]
    command += ["--segment", f"{BROADCAST}:{port}", "--onto-the-network"]
    for answer, status in ((b"n\n", 1), (b"y\n", 0)):
        ours, theirs = pty.openpty()
        os.set_blocking(theirs, False)  # as a parent may leave it
        with Wire(port) as wire:
            process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, cwd=ROOT)
            wait_until_idle(process)
            os.write(ours, answer)
            _, output = process.communicate(timeout=PATIENCE)
            assert (process.returncode, b"All hosts on" in output) == (status, True)
            # On the loopback, what was sent before the process ended is there.
            assert bool(list(wire.rest())) == (not status)
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("given", "code", "output"),
    [
        (["--speed", "fast"], 2, "'max'"),
        (["--speed", "0"], 2, "'max'"),
        (["--since", "yesterday"], 2, "not a time"),
        (["--name", "x"], 2, "--segment"),
        (["--key", "x"], 2, "--segment"),
        (["--segment", "nowhere", "--onto-the-network"], 2, "ADDRESS:PORT"),
        (["--segment", "10.0.0.300:5400", "--onto-the-network"], 2, "10.0.0.300:5400"),
        (["--host", "a/b"], 2, "--host a/b"),
        (["--host", "nobody"], 1, "host nobody"),
        (["--channel", "nothing"], 1, "nothing to replay"),
        (["--to", "2001-01-01"], 1, "obs/"),
        ([], 4, "cannot reach the daemon"),
    ],
)
def test_what_is_wrong_is_said(journal: Path, given: list[str], code: int, output: str) -> None:
    done = bccn("--socket", "/nowhere/bus.sock", "replay", str(journal), "--yes", *given)
    assert (done.exit_code, output in done.stderr, "Traceback" in done.stderr, done.stdout) == (code, True, False, "")
