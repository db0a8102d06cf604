"""Standard streams that are closed, or that a parent has made non-blocking: every command waits for input and room."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import bccnd
from tests.e2e.harness import BIN, Daemon, Wire, datagram
from tests.idle import wait_until_idle
from tests.support import BROADCAST, PATIENCE, free_port, wait

PIECES: Final = (b"one\n", b"tw", b"o\nthree\n")
#: messages, of a size of which few fit in a pipe
MESSAGES: Final = 40
PAYLOAD: Final = b"x" * 1000


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("streams") / "d") as one:
        yield one


@contextmanager
def non_blocking_pipe(*, full: bool = False) -> Iterator[tuple[int, int]]:
    """A pipe of one page, with a file for each end."""
    ends = os.pipe2(os.O_NONBLOCK)
    os.write(ends[1], b"-" * (full * fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1)))
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def started(
    daemon: Daemon, *words: str, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE, program: str = "bccn",
) -> Iterator[subprocess.Popen[bytes]]:  # fmt: skip
    """A command, which is gone at the end."""
    socket = ["--socket", str(daemon.bus)] if program == "bccn" else []
    command = [str(BIN / program), *socket, *words]
    with subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


def feed(process: subprocess.Popen[bytes], writer: int, pieces: Sequence[bytes]) -> None:
    """Write pieces, each when the one before has been read, and more is waited for."""
    for piece in pieces:
        wait_until_idle(process)
        os.write(writer, piece)
    wait_until_idle(process)


def read_slowly(process: subprocess.Popen[bytes], reader: int) -> bytes:
    """Read until a process ends, and only when it waits for room."""
    found = b""
    deadline = time.monotonic() + 2 * PATIENCE
    while time.monotonic() < deadline:
        wait_until_idle(process)
        ended = process.poll() is not None
        # A page, even if there is room for more after it: so the command waits for room again and again.
        while waiting := int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), "little"):
            found += os.read(reader, waiting)
            if not ended:
                break
        if ended:
            return found
    raise AssertionError("a command did not end")


def outcome(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """The exit status, and what standard error holds."""
    status = process.wait(PATIENCE)
    return status, process.stderr.read().decode() if process.stderr else ""


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        *((command, ["one", "two", "three"]) for command in ("pub", "direct pub")),
        *((command, ["one\ntwo\nthree\n"]) for command in ("pub -s", "pub -f -", "direct pub -s")),
    ],
)
def test_what_is_published_waits_for_input(daemon: Daemon, command: str, wanted: list[str]) -> None:
    words = command.split()
    if words[0] == "direct":
        words += ["--segment", f"{BROADCAST}:{daemon.port}"]
    with daemon.connect() as bus, non_blocking_pipe() as (reader, writer):
        bus.subscribe("in")
        bus.sync()
        with started(daemon, *words, "in", stdin=reader) as process:
            feed(process, writer, PIECES)
            os.dup2(reader, writer)  # the end of the input
            assert outcome(process) == (0, "")
        assert not os.get_blocking(reader), "the flag belongs to the parent"
        got = [bus.receive(PATIENCE) for _ in wanted]
        assert [one.text for one in got if isinstance(one, bccnd.Message)] == wanted
        assert bus.receive(0) is None


def test_a_pipe_for_programs_waits_for_input_and_for_room(daemon: Daemon) -> None:
    line = b'{"op": "publish", "chan": "p/x", "payload": "%s", "id": %d}\n'
    lines = [b'{"op": "subscribe", "pattern": "p/", "id": 0}\n', *(line % (PAYLOAD, one) for one in range(1, 13))]
    with (
        non_blocking_pipe() as (reader, writer),
        non_blocking_pipe() as (ours, theirs),
        started(daemon, "pipe", stdin=reader, stdout=theirs) as process,
    ):
        feed(process, writer, lines)
        os.dup2(reader, writer)
        answers = [json.loads(one) for one in read_slowly(process, ours).splitlines()]
        assert outcome(process) == (0, "")
    assert [one["id"] for one in answers if one["event"] == "done"] == list(range(13))
    assert sum(one["event"] == "message" for one in answers) == 12


@pytest.mark.parametrize("words", [["sub", "out"], ["sub", "--raw", "out"], ["tap", "--json", "-c", "out"]])
def test_each_message_is_printed_however_slow_the_reader(daemon: Daemon, words: list[str]) -> None:
    with non_blocking_pipe() as (reader, writer), daemon.connect() as bus, Wire(daemon.port) as wire:
        before = subscribed(bus)
        with started(daemon, *words, "-n", str(MESSAGES), stdout=writer) as process:
            wait(lambda: subscribed(bus) > before or process.poll() is not None, "a subscription")
            for number in range(MESSAGES):
                wire.send(datagram(f"{'-'.join(words)}/{number}", 1, "out", PAYLOAD))
            found = read_slowly(process, reader)
            assert outcome(process) == (0, "")
    assert found.count(PAYLOAD) == MESSAGES


def subscribed(bus: bccnd.Connection) -> int:
    return sum(row["subscriptions"] for row in json.loads(bus.ask("!/bccn/stats", "clients"))["items"])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("bccn", "--help"),
        ("bccn", "clients"),
        ("bccn", "sources --json"),
        ("bccn", "top --once --interval 100ms"),
        ("bccn", "pub"),
        ("bccn", "pub bad:channel x"),
        ("bccnd", "--help"),
        ("bccnd", "--check --config /nowhere"),
        ("bccn-sbusd", "-u nobody-of-this-name"),
    ],
)
def test_every_text_waits_for_room(daemon: Daemon, program: str, words: str) -> None:
    with started(daemon, *words.split(), program=program, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        wanted = process.stdout.read()
        status = process.wait(PATIENCE)
    with non_blocking_pipe(full=True) as (reader, writer):
        with started(daemon, *words.split(), program=program, stdout=writer, stderr=writer) as process:
            found = read_slowly(process, reader)
            assert process.wait(PATIENCE) == status
        assert not os.get_blocking(writer)
    assert len(found.splitlines()) == len(wanted.splitlines())
    assert found.strip(b"-")[:10] == wanted[:10]
    assert b"Traceback" not in found


@pytest.mark.parametrize("words", [["sub", ""], ["pipe"]])
def test_a_reader_that_has_gone_ends_a_command_as_ever(daemon: Daemon, words: list[str]) -> None:
    line = b'{"op": "subscribe", "pattern": ""}\n'
    with daemon.connect() as bus, non_blocking_pipe() as (given, giver):
        reader, writer = os.pipe2(os.O_NONBLOCK)
        os.write(giver, line)
        before = subscribed(bus)
        with started(daemon, *words, stdin=given, stdout=writer) as process:
            os.close(writer)
            wait(lambda: subscribed(bus) > before, "a subscription")
            for _ in range(100):
                bus.publish("a", PAYLOAD)
            bus.sync(PATIENCE)
            wait_until_idle(process)
            os.close(reader)
            assert outcome(process) == (-signal.SIGPIPE, "")


def test_an_interrupt_does_not_print_a_text_again() -> None:
    script = """
import signal, sys
from bccnd.cli.shared.standard_streams import make_streams_wait

printing = False

def interrupt(*_):
    global printing
    if printing:
        printing = False
        raise KeyboardInterrupt

make_streams_wait()
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
for number in range(50_000):
    try:
        printing = True
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
        printing = False
    except KeyboardInterrupt:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=2 * PATIENCE, check=True)
    printed = [int(line) for line in done.stdout.split()]
    assert printed
    assert printed == sorted(set(printed))


# -- programs that are started without standard streams: no other descriptor gets the number of one


@contextmanager
def closed(redirections: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that is started with these streams closed; at the end it is told to end, and does."""
    null = subprocess.DEVNULL
    words = ["sh", "-c", f'exec "$@" {redirections}', "sh", *command]
    with subprocess.Popen(words, stdin=null, stdout=null, stderr=null) as process:
        try:
            yield process
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def streams(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]


def serves(path: Path) -> bool:
    try:
        with bccnd.connect(str(path), reconnect=False) as client:
            client.subscribe("a")
            client.publish("a", b"x")
            return isinstance(client.receive(PATIENCE), bccnd.Message)
    except bccnd.BusError:
        return False


@pytest.mark.parametrize("redirections", ["<&- >&- 2>&-", "2>&-", "<&- 2>&-"])
def test_a_server_has_no_socket_in_place_of_a_stream(tmp_path: Path, redirections: str) -> None:
    path = tmp_path / "bus.sock"
    with closed(redirections, str(BIN / "bccn-sbusd"), "-f", "-a", str(path)) as process:
        wait(lambda: serves(path), "the bus")
        assert streams(process.pid) == ["/dev/null"] * 3


def test_a_daemon_and_its_gateway_log_into_no_socket(tmp_path: Path) -> None:
    gateways = {"nng": {"listen": [f"tcp://127.0.0.1:{free_port()}"]}}
    daemon = Daemon(tmp_path / "a", {"gateways": gateways}, start=False)
    with closed("<&- >&- 2>&-", str(BIN / "bccnd"), "--config", str(daemon.config)) as process:
        wait(lambda: serves(daemon.bus) and b'"up": true' in daemon.tool("gateways", "--json").stdout, "both")
        assert streams(process.pid) == ["/dev/null"] * 3
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert [streams(int(child))[1:] for child in children] == [["/dev/null"] * 2]
        process.send_signal(signal.SIGHUP)  # is logged, as is the end
        wait(lambda: daemon.metric("config_reloads_total", result="applied") == 1, "the reload")
        assert serves(daemon.bus)
