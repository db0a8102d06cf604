"""What the end-to-end tests share: a real daemon, a plain sender, waiting with patience."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any, Self

from click.testing import CliRunner

import bccnd
from bccnd.cli.main import main
from tests.support import BROADCAST, Closing, free_port, metric
from tests.support import PATIENCE as PATIENCE
from tests.support import datagram as datagram
from tests.support import wait as wait

BIN = Path(sys.executable).parent
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
KEY = b"0123456789abcdef0123456789abcdef"


class Wire(Closing):
    """Another program of the segment: a plain UDP socket."""

    def __init__(self, port: int, address: str = BROADCAST) -> None:
        self._to = (address, port)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind(("", port))
        self.sock.settimeout(PATIENCE)

    def send(self, *datagrams: bytes) -> None:
        for one in datagrams:
            self.sock.sendto(one, self._to)

    def receive(self, part: bytes) -> bytes:
        """The next datagram that holds ``part``, of any sender."""
        while True:
            data = self.sock.recv(65536)
            if part in data:
                return data

    def rest(self) -> Iterator[bytes]:
        """What has come and was not heard yet."""
        self.sock.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                yield self.sock.recv(65536)

    def close(self) -> None:
        self.sock.close()


class Program:
    """A process that a test starts, and its log."""

    log: Path
    patience: float
    process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        return self.process

    @property
    def pid(self) -> int:
        return self.running.pid

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def signal(self, number: int) -> None:
        self.running.send_signal(number)

    def kill(self, number: int = SIGKILL) -> None:
        """Send a signal and wait for the end."""
        self.signal(number)
        self.running.wait(self.patience)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if not self.ended():
            self.running.terminate()
        return self.running.wait(self.patience)

    def __enter__(self) -> Self:
        return self


class Daemon(Program):
    """A running bccnd with a configuration of its own in ``folder``.

    Defaults to the loopback broadcast; ``settings`` are merged over that, section by section. ``prefix`` runs it
    somewhere else (``ip netns exec NAME``). ``patience`` is the seconds that it may take to start, answer and end.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any] | None = None,
        *,
        prefix: Sequence[str] = (),
        start: bool = True,
        patience: float = PATIENCE,
    ) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder
        self.patience = patience
        self.prefix = list(prefix)
        #: beside --config
        self.options: list[str] = []
        self.bus = folder / "bus.sock"
        self.config = folder / "bccnd.yaml"
        self.log = folder / "log"
        self.settings: dict[str, Any] = {
            "host": "relay01",
            "segments": [{"address": BROADCAST, "port": free_port(), "receive_buffer": "4MiB"}],
            "bus": {"path": str(self.bus)},
            "metrics": {"listen": f"127.0.0.1:{free_port()}"},
            # Most tests count every datagram.
            "reports": {"interval": 0},
        }
        self.configure(settings or {})
        if start:
            self.start()

    @property
    def port(self) -> int:
        return int(self.settings["segments"][0]["port"])

    @property
    def url(self) -> str:
        return f"http://{self.settings['metrics']['listen']}"

    def configure(self, settings: dict[str, Any]) -> None:
        """Merge settings and write the file."""
        for name, value in settings.items():
            if isinstance(value, dict):
                self.settings[name] = {**self.settings.get(name, {}), **value}
            else:
                self.settings[name] = value
        self.config.write_text(json.dumps(self.settings))

    def with_key(self, *keys: bytes) -> dict[str, Any]:
        """Write keys to files; returns the integrity section that names them."""
        names = []
        for number, key in enumerate(keys):
            path = self.folder / f"key{number}"
            path.write_bytes(key)
            path.chmod(0o600)
            names.append(str(path))
        return {"algorithm": "hmac", "keys": names, "required": True}

    def start(self) -> None:
        """Start, and wait until it serves."""
        before = self.output().count("ready: ")
        self.process = self.spawn()
        wait(lambda: self._serves(before), f"the daemon to be ready:\n{self.output()}", self.patience)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start without waiting; the log goes to ``folder/log``."""
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stderr=log)

    def command(self, *options: str) -> list[str]:
        return [*self.prefix, str(BIN / "bccnd"), "--config", str(self.config), *self.options, *options]

    def _serves(self, starts: int) -> bool:
        assert not self.ended(), f"the daemon ended:\n{self.output()}"
        return self.output().count("ready: ") > starts

    def connect(self, *patterns: str) -> bccnd.Connection:
        """A client with patterns that are in force when this returns."""
        client = bccnd.connect(str(self.bus))
        client.subscribe(*patterns)
        assert client.sync(self.patience) == []
        return client

    def raw(self) -> socket.socket:
        return seqpacket(str(self.bus))

    def tool(self, *arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run ``bccn`` with this daemon's socket to its end, without a process of its own."""
        return bccn(*arguments, bus=self.bus, stdin=stdin)

    def tool_command(self, *arguments: str) -> list[str]:
        return [*self.prefix, str(BIN / "bccn"), "--socket", str(self.bus), *arguments]

    @contextmanager
    def tool_running(self, *arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A ``bccn`` that goes on while the test does something else."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        with subprocess.Popen(self.tool_command(*arguments), **pipes) as process:
            try:
                yield process
            finally:
                process.kill()

    def page(self, path: str) -> str:
        there = inside(self.prefix[-1]) if self.prefix[:1] == ["ip"] else nullcontext()  # its loopback is not ours
        with there, urllib.request.urlopen(self.url + path, timeout=self.patience) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that carry these labels."""
        return metric(self.page("/metrics"), name, **labels)

    def verdicts(self) -> dict[str, int]:
        """Verdicts that are not zero; checks on the way that they add up to what was read."""
        page = self.page("/metrics")
        pairs = re.findall(r'^bccnd_datagrams_total\{.*verdict="(\w+)"\} (\S+)$', page, re.MULTILINE)
        received = re.findall(r"^bccnd_datagrams_received_total\{.*\} (\S+)$", page, re.MULTILINE)
        assert sum(float(count) for _, count in pairs) == sum(map(float, received))
        totals: dict[str, int] = {}
        for name, count in pairs:
            totals[name] = totals.get(name, 0) + int(float(count))
        return {name: count for name, count in totals.items() if count}

    def reload(self) -> None:
        """SIGHUP, and wait until the daemon has said what came of it."""
        before = self.output().count("reload")
        self.signal(signal.SIGHUP)
        wait(lambda: self.output().count("reload") > before, "the reload", self.patience)

    def memory(self) -> int:
        """Resident bytes."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.process is not None:
            status = self.stop()
            if kind is None:
                assert status == 0, self.output()
                assert not self.bus.exists()
                assert "bug" not in self.output(), self.output()


def bccn(
    *arguments: str | Path, bus: str | Path = "/nonexistent/bus.sock", stdin: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the tool to its end, without a process of its own. By itself it finds no daemon."""
    words = ["--socket", str(bus), *map(str, arguments)]
    done = CliRunner().invoke(main, words, input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout_bytes, done.stderr_bytes)


def seqpacket(address: str | bytes) -> socket.socket:
    """A bare client of the bus."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(PATIENCE)
    sock.connect(address)
    return sock


class Stream(Closing):
    """A sender in the background that keeps to a rate: numbers from 1 on, each sealed as at that moment."""

    def __init__(self, port: int, rate: float, sign: Callable[[int], bytes]) -> None:
        self.sign = sign
        #: the time at which each number went out, in microseconds
        self.sent: dict[int, int] = {}
        self._wire = Wire(port)
        self._rate = rate
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        start = time.monotonic()
        while not self._over:
            due = int((time.monotonic() - start) * self._rate) - len(self.sent)
            for _ in range(min(due, 200)):  # what was held up is no burst later
                seq = len(self.sent) + 1
                self.sent[seq] = time.time_ns() // 1000
                self._wire.send(self.sign(seq))
            time.sleep(0.002)

    def go_on(self, seconds: float) -> None:
        """Let it send for a while."""
        aim = len(self.sent) + int(self._rate * seconds)
        wait(lambda: len(self.sent) >= aim, "the sender")

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self._wire.close()


@contextmanager
def inside(name: str) -> Iterator[None]:
    """Be in another network namespace, with this thread."""
    with open("/proc/self/ns/net") as here, open(f"/run/netns/{name}") as there:
        if _libc.setns(there.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
        try:
            yield
        finally:
            assert _libc.setns(here.fileno(), _CLONE_NEWNET) == 0


def refused(daemon: Daemon) -> str:
    """Start a daemon that must exit with status 2 and a remedy; return its log."""
    process = daemon.spawn()
    assert process.wait(PATIENCE) == 2, daemon.output()
    output = daemon.output()
    assert "remedy" in output
    assert "Traceback" not in output
    return output


@contextmanager
def acting_as(uid: int, *groups: int) -> Iterator[None]:
    """Be another user, in these groups (the first one is the primary, ``uid`` without any); takes root."""
    before = os.getgroups()
    os.setgroups(groups[1:])
    os.setegid(groups[0] if groups else uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


def payloads(client: bccnd.Connection, count: int, timeout: float = PATIENCE) -> list[bytes]:
    """The payloads of the next messages; fewer when ``timeout`` passes without one."""
    got: list[bytes] = []
    while len(got) < count:
        event = client.receive(timeout)
        if event is None:
            break
        if isinstance(event, bccnd.Message):
            got.append(event.payload)
    return got
