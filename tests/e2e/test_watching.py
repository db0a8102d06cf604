"""The commands that watch a daemon or publish to it, against a real one."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import pwd
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import bccnd
from bccnd.core.formats.pcap import CaptureCounts, Reader, unwrap
from tests.e2e.harness import KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.shared import BY_VERDICT
from tests.support import Closing

ME = pwd.getpwuid(os.getuid()).pw_name
#: with bytes that a terminal would take for orders
CONTENT = b"two\nlines \x1b[m\xff"
SHOWN = rb"two\nlines \x1b[m\xff"


@contextmanager
def watching(daemon: Daemon, *commands: Sequence[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Commands of ``bccn`` that have subscribed to what they want, each once, beside what there was before."""
    before = daemon.metric("subscriptions")
    with ExitStack() as stack:
        running = [stack.enter_context(daemon.tool_running(*words)) for words in commands]
        wait(lambda: daemon.metric("subscriptions") == before + len(commands), "the commands to subscribe")
        yield running


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def test_the_tap_shows_each_datagram_with_its_verdict(signed: Daemon, tmp_path: Path) -> None:
    tap = ["tap", "-n", str(len(BY_VERDICT)), "-t", str(PATIENCE)]
    file = tmp_path / "tap.pcapng"
    forms = ["--json"], ["--pcapng", "-"], ["--pcapng", str(file)]
    with Wire(signed.port) as wire, watching(signed, *([*tap, *form] for form in forms)) as taps:
        wire.send(*BY_VERDICT.values())
        results = [ended(one) for one in taps]
    assert [(status, err) for status, _, err in results] == [(0, b"")] * 3
    assert set(BY_VERDICT) == set(signed.verdicts())
    (_, objects, _), (_, capture, _), _ = results
    peer = f"127.0.0.1:{signed.port}"
    rows = [json.loads(line) for line in objects.splitlines()]
    assert [row["verdict"] for row in rows] == list(BY_VERDICT)
    for row, raw in zip(rows, BY_VERDICT.values(), strict=True):
        assert (row["segment"], row["peer"]) == (f"127.255.255.255#{signed.port}", peer)
        assert "src" in row or raw.startswith(base64.b64decode(row["datagram_base64"])[:1400])
    assert rows[0].items() >= {"algo": "hmac", "src": "relay02/s/1", "seq": 5005, "chan": "demo/x"}.items()
    assert rows[-1]["epoch"] == rows[0]["epoch"] + 1
    # As a capture, in which an oversized datagram is cut.
    counts = CaptureCounts()
    packets = (unwrap(packet, signed.port, counts) for packet in Reader("tap", counts).feed(capture))
    for raw, written in zip(BY_VERDICT.values(), packets, strict=True):
        assert written is not None
        assert (written.payload[:1400], written.peer) == (raw[:1400], peer)
    assert all(verdict.encode() in capture for verdict in BY_VERDICT)
    assert len(file.read_bytes()) == len(capture)


def test_the_tap_explains_which_clients_got_what_and_why(signed: Daemon) -> None:
    one, two = (datagram("relay02/s/1", seq, chan, b"", KEY) for seq, chan in ((5, "demo/x"), (6, "nothing/here")))
    with signed.connect("demo/*", "demo/", "other") as near, signed.connect("other") as far, Wire(signed.port) as wire:
        tap = ["tap", "--explain", "-t", str(PATIENCE)]
        mine = [*tap, "-n", "1", "-s", "relay02/s", "--seq", "6"]
        with watching(signed, [*tap, "--json", "-n", "5"], mine) as (objects, lines):
            wire.send(one, one, datagram("relay02/s/2", 1, "!relay01", b"", KEY), two)
            far.publish("demo/y", "local")
            (status, out, _), (other, text, _) = ended(objects), ended(lines)
        names = [near.identity(), far.identity()]
    assert (status, other) == (0, 0)
    rows = {(row["verdict"], row["chan"]): row for row in map(json.loads, out.splitlines())}
    got = {
        key: {client["identity"]: sorted(client["patterns"]) for client in row.get("receivers", [])}
        for key, row in rows.items()
    }
    assert got["accepted", "demo/x"] == {names[0]: ["demo/", "demo/*"]}
    assert got["duplicate", "demo/x"] == {}
    assert rows["duplicate", "demo/x"]["reason"]
    assert {name: got["accepted", "!relay01"][name] for name in names} == {name: [] for name in names}
    assert list(got["looped", "demo/y"]) == [names[0]]
    assert b" relay02/s/1 6 nothing/here" in text.splitlines()[0]
    assert len(text.splitlines()) == 2


def test_pub_takes_files_and_sub_prints_in_any_format(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    with Daemon(tmp_path / "a") as daemon, daemon.connect("x") as client:
        for command, stdin in ((["-f", str(file)], b""), (["-s"], CONTENT), (["-f", "-"], CONTENT)):
            done = daemon.tool("pub", "x", *command, stdin=stdin)
            assert (done.returncode, done.stderr, payloads(client, 1)) == (0, b"", [CONTENT])
        assert daemon.tool("pub", "x", "again", "--repeat", "3", "--interval", "1ms").returncode == 0
        assert payloads(client, 3) == [b"again"] * 3
        formats = (["--raw"], ["--format", r"{src} {chan} {{}} {payload}"], ["-q"])
        with watching(daemon, *(["sub", "-n", "1", *one, "x"] for one in formats)) as subs:
            client.publish("x", CONTENT)
            results = [ended(one) for one in subs]
        formatted = b"%b x {} %b\n" % (client.identity().encode(), SHOWN)
        assert results == [(0, CONTENT, b""), (0, formatted, b""), (0, b"x " + SHOWN + b"\n", b"")]
        for wrong in (
            *(["pub", "x", "y", "-s"], ["pub", "x", "--repeat", "2"], ["pub", "x", "y", "--interval", "1"]),
            *(["sub", "--raw", "--json"], ["sub", "--format", "{peer}"], ["sub", "--format", "{src"]),
            *(["sub", "--format", "{src.x}"], ["pub", "x", "-f", str(tmp_path / "nosuch")]),
        ):
            refused = daemon.tool(*wrong)
            assert (refused.returncode, refused.stdout) == (2, b""), wrong


def test_a_user_without_the_right_gets_a_remedy(tmp_path: Path) -> None:
    rules = [{"user": ME, "tap": False, "tag": False, "subscribe": ["demo/"]}]
    with Daemon(tmp_path / "a", {"access": rules}) as daemon:
        for words, status, remedy in (
            ("tap", 3, "tap: true"),
            ("tap -v stale", 3, "tap: true"),
            ("trace x", 3, "tap: true"),
            ("pub --tag log x y", 3, ""),
            (f"sub -t {PATIENCE}", 3, ""),
            ("tap --segment eth9", 1, "eth9"),
            ("tap -v nonsense", 2, "nonsense"),
        ):
            done = daemon.tool(*words.split())
            assert (done.returncode, done.stdout, remedy in done.stderr.decode()) == (status, b"", True), words
            assert done.stderr
        assert daemon.tool("top", "--once", "--interval", "0.1").returncode == 0


def test_a_trace_says_at_which_stage_a_datagram_would_end(signed: Daemon) -> None:
    elsewhere = datagram("relay02/s/1", 6, "!relay99", b"x", KEY)
    with signed.connect("demo/") as client:
        answer = json.loads(signed.tool("trace", "--hex", "--json", elsewhere.hex(":")).stdout)
        assert (answer["verdict"], answer["receivers"]) == ("not_addressed", [])
        assert [one["stage"] for one in answer["stages"] if not one["passed"]] == ["match"]
        good = datagram("relay02/s/1", 6, "demo/x", b"hi\x1b[31m", KEY)
        text = signed.tool("trace", stdin=good + b"\n").stdout.decode()
        assert client.identity() in text
        assert "\x1b" not in text
        # Nothing came of all this.
        assert signed.verdicts() == {}


class Screen(Closing):
    """A program on a terminal of 80 columns and 24 lines; ``text`` is what it has written so far."""

    def __init__(self, *command: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        self.text = ""

    def wait(self, part: str) -> None:
        """Wait until something stands in what was written since the last time."""
        deadline = time.monotonic() + PATIENCE
        while part not in self.text:
            assert time.monotonic() < deadline, f"waited in vain for {part!r} in {self.text!r}"
            self._read()
        self.text = self.text.partition(part)[2]

    def _read(self) -> None:
        if select.select([self._master], [], [], 0.1)[0]:
            self.text += os.read(self._master, 65536).decode()

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        """Wait for the end; the exit status."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        self._read()
        return self.process.wait(0)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert termios.tcgetattr(self._slave) == self.before
        os.close(self._master)
        os.close(self._slave)


def test_top_outlives_the_daemon_and_restores_the_terminal(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, Wire(daemon.port) as wire:
        command = daemon.tool_command("top", "--interval", "0.2")
        followers = (["sub", "-n", "3", "demo/"], ["tap", "-n", "3", "-c", "demo/"])
        with watching(daemon, *followers) as (sub, tap), Screen(*command) as screen:
            screen.wait("\x1b[?1049h")
            screen.wait("relay01")
            wait(lambda: daemon.metric("subscriptions") == 3, "bccn top to listen")
            wire.send(datagram("relay02/s/1", 1, "demo/busy"), datagram("relay02/s/1", 2, "demo/busy"))
            screen.wait("demo/busy")
            assert daemon.stop() == 0
            screen.wait("AWAY")
            daemon.start()
            screen.wait("restarted")
            wait(lambda: daemon.metric("subscriptions") == 3, "all to come back")
            wire.send(datagram("relay02/s/1", 3, "demo/busy", b"back"))
            for status, out, err in map(ended, (sub, tap)):
                assert (status, len(out.splitlines()), out.split()[-1], bool(err)) == (0, 3, b"back", True)
            screen.type(b"x")
            screen.wait("relay01")
            screen.type(b"q")
            screen.wait("\x1b[?1049l")
            assert screen.end() == 0
        with Screen(*command) as screen:
            screen.wait("relay01")
            screen.process.send_signal(signal.SIGHUP)
            screen.wait("\x1b[?1049l")
            assert screen.end() == 0


SIGNAL_THAT_PYTHON_IGNORES = """
import os, signal, sys
from bccnd.cli import main
from bccnd.cli.diagnosis import top

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))

def figures(*arguments, dropped=[Dropped()], figures=top.model.figures):
    dropped.clear()
    return figures(*arguments)

top.model.figures = figures
main.main(["--socket", sys.argv[1], "top", "--interval", "0.2"])
"""


def test_top_ends_by_a_signal_whose_exception_python_ignores(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "a") as daemon,
        Screen(sys.executable, "-c", SIGNAL_THAT_PYTHON_IGNORES, str(daemon.bus)) as screen,
    ):
        screen.wait("KeyboardInterrupt")
        assert screen.end() == 0


def test_lines_are_published_completely_each_at_once(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.connect("logs/") as client:
        client.blocking(hard="block")  # so that no client is too slow here
        client.sync()
        lines = [b"line %d" % number for number in range(5000)]
        feed = tmp_path / "lines"
        feed.write_bytes(b"\n".join(lines))  # the last one without an end
        with feed.open("rb") as stdin, daemon.tool_running("pub", "logs/a", stdin=stdin) as pub:
            assert payloads(client, len(lines)) == lines
            assert ended(pub) == (0, b"", b"")
        with daemon.tool_running("pub", "--tag", "app", "logs/a", stdin=subprocess.PIPE) as pub:
            assert pub.stdin is not None
            for part, line in ((b"one\ntw", b"one"), (b"o\n", b"two")):
                pub.stdin.write(part)
                pub.stdin.flush()
                message = client.receive(PATIENCE)
                assert isinstance(message, bccnd.Message)
                assert (message.payload, message.src) == (line, f"relay01/bccn/{pub.pid}/app")
            assert ended(pub) == (0, b"", b"")
