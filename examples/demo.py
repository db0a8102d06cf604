"""The main job, an incident and the report that explains it, in a minute: `make demo`.

Starts daemons of two hosts on the loopback broadcast address and clients in three languages, sends datagrams, one in
ten of which one host loses, and makes a page about that. Each line under the name of a program was printed by it.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
BROADCAST = "127.255.255.255"
#: seconds between two steps, so that people can follow; a test sets it to 0
PAUSE = float(os.environ.get("DEMO_PAUSE") or 1.2)
#: seconds that anything may take before the demo gives up
PATIENCE = 30.0
#: seconds for the tables and their page, which take longer on a busy machine
PATIENCE_WITH_TABLES = 120.0
#: where the page stays
PAGE = Path(os.environ.get("DEMO_PAGE") or f"{tempfile.gettempdir()}/bccnd-demo-{os.getuid()}")
#: readings that are sent, and which of them the second host loses
READINGS = 400
LOST = 10
#: the last words
TO_REMEMBER = """
[bold]Two facts to remember:[/]
  - A message is delivered at most once: what is lost is counted and reported, but never sent again.
  - Anyone on the LAN can send under any name, and every program receives it, until you set a key."""

console = Console(highlight=False, soft_wrap=True)


class Failed(Exception):
    """Something that should have been seen was not."""


class Program:
    """A running program whose output lines are shown under its name as they come."""

    def __init__(self, name: str, colour: str, command: list[str], **environment: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self._colour = colour
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def _show(self) -> None:
        out = self._process.stdout
        assert out is not None
        while data := os.read(out.fileno(), 65536):
            # socat prints the frames as they are: one behind the other, with a NUL behind each key.
            text = re.sub(r"(?<!C)MSG ", r"\nMSG ", data.decode(errors="replace")).replace("\0", " ")
            for line in text.split("\n"):
                if line.strip():
                    self.lines.append(line)
                    show(self.name, self._colour, line)

    def finish(self, patience: float) -> int:
        """Wait until the program has ended by itself. Raises Failed."""
        try:
            status = self._process.wait(patience)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"waited in vain for {self.name} to end") from late
        self._thread.join(PATIENCE)
        return status

    def wait_for(self, pattern: str) -> None:
        """Wait until a line matches. Raises Failed."""
        wait(lambda: any(re.search(pattern, line) for line in self.lines), f"{self.name} to print {pattern!r}")

    def stop(self) -> int:
        """End the program and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        self._thread.join(PATIENCE)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status


def wait(done: object, what: str) -> None:
    """Wait until ``done()`` is true. Raises Failed when it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while not (callable(done) and done()):
        if time.monotonic() > deadline:
            raise Failed(f"waited in vain for {what}")
        time.sleep(0.02)


def print_step(text: str) -> None:
    time.sleep(PAUSE)
    console.print(f"\n[bold]{text}[/]")


def show(program: str, colour: str, line: str) -> None:
    """Print a line of a program with one write, as several programs print."""
    console.print(f"    [{colour}]{program:>11}[/] │ {escape(line)}", soft_wrap=True)


def show_sent(datagram: bytes) -> None:
    show("on the wire", "dim", datagram.decode("ascii", "backslashreplace"))


def open_port(port: int) -> socket.socket:
    """Open a UDP socket that receives and sends broadcasts, on a port that other programs use as well."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind(("", port))
    return sock


class Wire:
    """Another host of the segment: a plain UDP socket that shares the port and knows the wire format by heart."""

    def __init__(self, port: int, key: bytes) -> None:
        self._to = (BROADCAST, port)
        self._key = key
        self._sock = open_port(port)
        self._sock.settimeout(PATIENCE)

    def datagram(self, body: bytes, key: bytes | None = None) -> bytes:
        total = hmac.digest(key or self._key, body, "sha256")[:8].hex().encode()
        return b"BCCN1[%d:hmac=%b]%b" % (len(body), total, body)

    def send(self, datagram: bytes, *, shown: bool = True) -> None:
        if shown:
            show_sent(datagram)
        self._sock.sendto(datagram, self._to)

    def receive_datagram(self, part: bytes) -> bytes:
        """The next datagram that holds ``part``."""
        while part not in (data := self._sock.recv(2048)):
            pass
        return data

    def close(self) -> None:
        self._sock.close()


class BadCable(threading.Thread):
    """A cable between two ports: carries all datagrams both ways, except every tenth reading to the second port."""

    def __init__(self, port: int, other: int) -> None:
        super().__init__(daemon=True)
        self._near, self._far, self._out = open_port(port), open_port(other), open_port(0)
        self._targets = {self._near: (BROADCAST, other), self._far: (BROADCAST, port)}
        self._ended = False
        self.passed = self.lost = 0

    def run(self) -> None:
        own_port = self._out.getsockname()[1]
        while not self._ended:
            for sock in select.select(list(self._targets), [], [], 0.2)[0]:
                data, (_, sender_port) = sock.recvfrom(2048)
                # What the cable itself has broadcast must not go back.
                if sender_port != own_port and not (sock is self._near and self._loses(data)):
                    self._out.sendto(data, self._targets[sock])

    def _loses(self, data: bytes) -> bool:
        """Count a reading, and decide whether the cable loses it."""
        if b":meter/" not in data:
            return False
        lost = (self.passed + self.lost + 1) % LOST == 0
        self.lost += lost
        self.passed += not lost
        return lost

    def end(self) -> None:
        self._ended = True
        self.join(PATIENCE)
        for sock in (self._near, self._far, self._out):
            sock.close()


class Metrics:
    """What Prometheus would scrape."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def verdicts(self, text: str = "") -> dict[str, int]:
        """Counts by verdict, now or as they were in a text."""
        return {
            found[1]: int(float(found[2]))
            for found in re.finditer(r'bccnd_datagrams_total\{.*verdict="(\w+)"\} (\S+)', text or self.text())
        }

    def value(self, name: str, text: str = "") -> int:
        found = re.search(rf"^bccnd_{name}(?:\{{.*\}})? (\S+)$", text or self.text(), re.MULTILINE)
        return int(float(found[1])) if found else 0

    def problems(self) -> list[str]:
        """The drops that need attention, as the status page shows them."""
        drops = json.loads(self.text("status.json"))["drops"]
        return [drop["name"] for drop in drops if drop["now"] and drop["serious"]]

    def text(self, page: str = "metrics") -> str:
        with urllib.request.urlopen(f"{self._url}/{page}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())


@contextmanager
def expecting(metrics: Metrics, verdict: str) -> Iterator[None]:
    """Show that what happens inside raises the count of a verdict."""
    before = metrics.verdicts()[verdict]
    yield
    wait(lambda: metrics.verdicts()[verdict] > before, f"the verdict {verdict}")
    after = metrics.verdicts()[verdict]
    show("refused", "red", f'bccnd_datagrams_total{{verdict="{verdict}"}} {before} → {after}')


def read_output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def daemon_of(folder: Path, undo: ExitStack, host: str, port: int, key: Path, colour: str) -> tuple[Path, int]:
    """A daemon of a host on a port of the loopback network: its socket, and the port of its metrics."""
    bus, config, metrics = folder / f"{host}.sock", folder / f"{host}.yaml", free_port(socket.SOCK_STREAM)
    config.write_text(
        json.dumps(
            {
                "host": host,
                "segments": [{"name": "lan", "address": BROADCAST, "port": port, "receive_buffer": "64KiB"}],
                "integrity": {"algorithm": "hmac", "keys": [str(key)], "required": False},
                "bus": {"path": str(bus)},
                "metrics": {"listen": f"127.0.0.1:{metrics}"},
                "reports": {"interval": "1s"},
                "access": [{"program": "bccn", "publish": ["demo/"]}],
            }
        )
    )
    name = "bccnd" if host == "demo01" else f"bccnd {host[-2:]}"
    daemon = Program(name, colour, [str(BIN / "bccnd"), "--config", str(config)])
    undo.callback(daemon.stop)
    daemon.wait_for("ready")
    return bus, metrics


def recorder_of(undo: ExitStack, host: str, bus: Path, journal: Path) -> Program:
    command = [str(BIN / "bccn"), "--socket", str(bus), "record", "--journal", str(journal), "--host", host]
    recorder = Program(f"record {host[-2:]}", "blue", command)
    undo.callback(recorder.stop)
    recorder.wait_for("recording what")
    return recorder


def play(folder: Path, undo: ExitStack) -> None:
    port = free_port(socket.SOCK_DGRAM)
    key = folder / "hmac.key"
    bus = folder / "demo01.sock"
    tool = [str(BIN / "bccn"), "--socket", str(bus)]

    console.print("[bold]bccnd: one daemon per host between the broadcast segment and the local programs.[/]")
    console.print("On the loopback network, in less than a minute. Nothing needs root; a page of 20 kB is left behind.")

    print_step("1. A key, a configuration, and the daemon.")
    subprocess.run([*tool, "keygen", str(key)], check=True, stderr=subprocess.DEVNULL, timeout=PATIENCE)
    _, metrics_port = daemon_of(folder, undo, "demo01", port, key, "cyan")
    metrics = Metrics(metrics_port)

    print_step("2. Three subscribers to demo/: bccn sub, a C program of 40 lines, a socat one-liner.")
    compiler = ["cc", "-o", str(folder / "subscribe"), str(HERE / "c/subscribe.c")]
    subprocess.run(compiler, check=True, timeout=PATIENCE)
    sub = Program("bccn sub", "green", [*tool, "sub", "--json", "demo/"])
    undo.callback(sub.stop)
    in_c = Program("C", "yellow", [str(folder / "subscribe"), str(bus), "demo/"])
    undo.callback(in_c.stop)
    shell = f"printf 'SUB demo/' | exec socat -t 86400 - UNIX-CONNECT:{bus},type=5"
    in_shell = Program("socat", "magenta", ["sh", "-c", shell])
    undo.callback(in_shell.stop)
    wait(lambda: metrics.value("subscriptions") == 3, "three subscriptions")
    console.print("    three subscriptions")

    wire = Wire(port, key.read_bytes().strip())
    undo.callback(wire.close)

    print_step("3. Another host broadcasts a datagram. It is checked once and reaches all three.")
    first = wire.datagram(b"relay02/sensor/77:1:demo/temperature|21.5")
    wire.send(first)
    for program in (sub, in_c, in_shell):
        program.wait_for("21.5")

    print_step("4. The same datagram again: a copy.")
    with expecting(metrics, "duplicate"):
        wire.send(first)

    print_step("5. One whose sender does not have the key: forged.")
    with expecting(metrics, "integrity_failed"):
        wire.send(wire.datagram(b"relay02/sensor/77:2:demo/temperature|99.9", secrets.token_bytes(32)))

    print_step("6. One whose length does not fit its body: malformed.")
    with expecting(metrics, "length_mismatch"):
        wire.send(b"BCCN1[999]relay02/sensor/77:2:demo/temperature|99.9")

    print_step("7. To one program by name: only the C program is called subscribe.")
    wire.send(wire.datagram(b"relay02/sensor/77:2:!demo01/subscribe/*|for you alone"))
    in_c.wait_for("for you alone")

    print_step("8. To everyone, whatever they have subscribed to.")
    wire.send(wire.datagram(b"relay02/sensor/77:3:!|lights out at ten"))
    for program in (sub, in_c, in_shell):
        program.wait_for("lights out at ten")

    print_step("9. The other way: a local program publishes, the other host receives it, signed and numbered.")
    subprocess.run([*tool, "pub", "demo/answer", "all is well"], check=True, timeout=PATIENCE)
    for program in (sub, in_c, in_shell):
        program.wait_for("all is well")
    show_sent(wire.receive_datagram(b"all is well"))

    print_step("10. An access rule: the command bccn may publish below demo/, and nowhere else.")
    stranger = Program("bccn pub", "green", [*tool, "pub", "alarm/fire", "leave the house"])
    undo.callback(stranger.stop)
    if not stranger.finish(PATIENCE):
        raise Failed("a message was published against the access rule")

    print_step("11. What Prometheus sees: every datagram has one verdict, and they add up.")
    wait(lambda: metrics.verdicts()["looped"], "our own broadcasts to come back")
    text = metrics.text()
    verdicts = metrics.verdicts(text)
    received = metrics.value("datagrams_received_total", text)
    for name, count in verdicts.items():
        if count:
            console.print(f"    {name:>20} {count:3}")
    console.print(f"    {'sum':>20} {sum(verdicts.values()):3}    datagrams read: {received}")
    if sum(verdicts.values()) != received:
        raise Failed("the verdicts do not add up to the datagrams read")
    console.print(f"    {'deliveries':>20} {metrics.value('deliveries_total'):3}")
    wait(lambda: "not_permitted" in metrics.problems(), "the status page to show the problems")
    console.print(f"    {'needs attention':>20} {', '.join(metrics.problems())}")
    console.print("    The status page says what to do about each, and alerts for Prometheus come with bccnd.")
    for program in (sub, in_c, in_shell):
        program.stop()
    follow(folder, undo, port, key, bus, wire)


def follow(folder: Path, undo: ExitStack, port: int, key: Path, bus: Path, wire: Wire) -> None:
    """Record an incident at two hosts, one of them behind a bad cable, and make the report of it."""
    print_step(f"12. The incident: a second host behind a cable that loses every {LOST}th reading. Both record.")
    other_port = free_port(socket.SOCK_DGRAM)
    cable = BadCable(port, other_port)
    cable.start()
    undo.callback(cable.end)
    other, _ = daemon_of(folder, undo, "demo02", other_port, key, "cyan")
    journal = folder / "journal"
    recorders = [recorder_of(undo, "demo01", bus, journal), recorder_of(undo, "demo02", other, journal)]

    print_step(f"13. {READINGS} readings from relay02. The second host alone cannot know what it did not receive.")
    for number in range(READINGS):
        wire.send(wire.datagram(b"relay02/meter/9:%d:meter/%d|%d" % (number + 1, number % 7, number)), shown=False)
        time.sleep(0.002)
    wait(lambda: cable.passed + cable.lost >= READINGS, "the cable to carry all readings")
    console.print(f"    {cable.passed} came through the cable, {cable.lost} were lost")
    time.sleep(0.5)
    for recorder in recorders:
        recorder.stop()

    print_step("14. The hosts tell each other what they have lost, so each knows at once where messages are lost.")
    fleet = [str(BIN / "bccn"), "--socket", str(other), "fleet"]
    findings: list[str] = []

    def name_the_cable() -> bool:
        findings[:] = [line for line in read_output(fleet).splitlines() if "demo02 loses" in line]
        return bool(findings)

    wait(name_the_cable, "bccn fleet to name the bad cable")
    for line in [*findings, *read_output([*fleet, "--matrix"]).splitlines()]:
        show("bccn fleet", "green", line)

    print_step("15. Both journals together explain it: tables of what each host saw, and a page of them.")
    title = "The demo: what became of every message"
    report = [str(BIN / "bccn"), "report", str(journal), "--out", str(folder / "page"), "--title", title]
    reporter = Program("bccn report", "green", report)
    undo.callback(reporter.stop)
    if reporter.finish(PATIENCE_WITH_TABLES):
        raise Failed("there is no page")
    if not any("demo02 misses messages of relay02" in line for line in reporter.lines):
        raise Failed("the page does not show the bad cable")
    PAGE.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Others may write to /tmp as well: what they have put there is not written through.
    found = PAGE.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Failed(f"{PAGE} is not ours; name another folder with DEMO_PAGE")
    for name in ("index.html", "matrix.json", "matrix.csv"):
        shutil.copyfile(folder / "page" / name, PAGE / name)


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="bccnd-demo-"))
    try:
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, folder)
            play(folder, undo)
            print_step("Done. Stopping everything:")
    except Failed as failed:
        console.print(f"[bold red]{failed}[/]")
        return 1
    left = folder.exists()
    console.print("Nothing is left behind but the page." if not left else f"[bold red]{folder} is left behind[/]")
    console.print(f"What became of every message, for your browser: [bold]{PAGE / 'index.html'}[/]")
    console.print(TO_REMEMBER)
    return int(left)


if __name__ == "__main__":
    sys.exit(main())
