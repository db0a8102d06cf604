"""What a busy link costs the programs of a host: `python -m tests.bench.link`."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click

from tests.bench.cases import BROADCAST, KEY, SIZE
from tests.bench.procs import cpu_of, family
from tests.bench.programs import ROOT, build
from tests.e2e.harness import PATIENCE, Daemon, datagram, wait
from tests.support import free_port

#: messages a second that are timed
LOCAL: Final = 2000
#: NNG's greeting: version 0 of BUS
HELLO: Final = b"\0SP\0\0\x70\0\0"
#: seconds between two writes of who sends over the link
BEAT: Final = 0.002


def gateway(daemon: Daemon) -> int:
    """The process that has the link."""
    assert daemon.process is not None
    return family(daemon.process.pid)[1]


@dataclass(frozen=True)
class Round:
    """What came of one round; microseconds, and processor time for a message over the link in nanoseconds."""

    p50: float
    p99: float
    lost: int = 0
    daemon_ns: float = 0.0
    gateway_ns: float = 0.0


@contextmanager
def host(folder: Path, link: int, *, idle: bool) -> Iterator[Daemon]:
    """A daemon that listens for a link."""
    near = Daemon(folder, {"host": "near"}, start=False)
    del near.settings["segments"][0]["receive_buffer"]
    near.configure({"integrity": near.with_key(KEY), "gateways": {"nng": {"listen": [f"tcp://127.0.0.1:{link}"]}}})
    near.start()
    with near:
        wait(lambda: near.metric("gateway_up", gateway="nng") == 1, "the gateway")
        if idle:
            for thread in os.listdir(f"/proc/{gateway(near)}/task"):
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
        yield near


# -- the other end of the link


def carried(number: int) -> bytes:
    """A message as it travels over a link."""
    around = len(datagram("far/sender/1", number, "far/c", b"x" * 100, KEY)) - 100
    raw = datagram("far/sender/1", number, "far/c", b"x" * (SIZE - around), KEY)
    return struct.pack(">Q", len(raw)) + raw


def send(port: int, rate: int, count: int, first: int) -> None:
    """Send so many messages over a link at an even pace; they are made beforehand."""
    each = max(1, round(rate * BEAT))
    packets = [b"".join(carried(first + at + i) for i in range(each)) for at in range(0, count, each)]
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(HELLO)
        greeting = b""
        while len(greeting) < len(HELLO):
            greeting += sock.recv(len(HELLO) - len(greeting))
        print("ready", flush=True)
        sys.stdin.readline()
        start = time.monotonic()
        for number, packet in enumerate(packets):
            time.sleep(max(0.0, start + number * each / rate - time.monotonic()))
            sock.sendall(packet)
            sock.setblocking(False)  # what goes the other way is of no interest
            try:
                while sock.recv(1 << 16):
                    pass
            except BlockingIOError:
                pass
            sock.setblocking(True)
        time.sleep(0.5)


# -- a round


def measure(programs: Path, near: Daemon, link: int, rate: int, seconds: float, first: int) -> Round:
    """One round, with so many messages a second over the link."""
    count = int(LOCAL * seconds)
    drain = [str(programs / "drain"), "-P", "seq", "-u", str(near.bus), "-N", str(count), "-s", "bench/"]
    flood = [str(programs / "flood"), "-p", str(near.port), "-a", BROADCAST, "-r", str(LOCAL), "-n", str(count), "-t"]
    # It begins before what is timed, and ends behind it.
    wanted = int(rate * (seconds + 1))
    wanted -= wanted % max(1, round(rate * BEAT))
    other = None
    if rate:
        words = [sys.executable, "-m", "tests.bench.link", "--send", str(link), "--rate", str(rate)]
        words += ["--count", str(wanted), "--first", str(first)]
        other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert other.stdout is not None
        other.stdout.readline()
        wait(lambda: near.metric("gateway_peers", gateway="nng") == 1, "the link")
    accepted = near.metric("datagrams_total", segment="nng", verdict="accepted")
    with subprocess.Popen(drain, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        client.stdout.readline()
        if other is not None and other.stdin is not None:
            other.stdin.write("go\n")
            other.stdin.flush()
            time.sleep(0.5)
        assert near.process is not None
        pids = (near.process.pid, gateway(near))
        busy = [cpu_of(pid) for pid in pids]
        subprocess.run([*flood, "-s", str(first)], stdout=subprocess.DEVNULL, check=True)
        used = [cpu_of(pid) - before for pid, before in zip(pids, busy, strict=True)]
        said = json.loads(client.stdout.read().strip().splitlines()[-1])
    if other is not None:
        other.communicate(timeout=PATIENCE)
    if said["n"] != count:
        raise click.ClickException(f"{count - said['n']} of the local messages were lost: {said}")
    lost = wanted - int(near.metric("datagrams_total", segment="nng", verdict="accepted") - accepted)
    latency, timed = said["latency"], max(LOCAL, rate) * seconds
    return Round(latency["p50_us"], latency["p99_us"], lost, used[0] / timed, used[1] / timed)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Of each kind, by turns.")
@click.option("--rate", default=5000, show_default=True, help="Messages a second over the link.")
@click.option("--seconds", default=3.0, show_default=True, help="That are timed in each round.")
@click.option("--idle", is_flag=True, help="Let the gateway have only what nobody else wants of the processors.")
@click.option("--check", is_flag=True, help="Fail if p99 rises by more than a half.")
@click.option("--send", "port", type=int, hidden=True)
@click.option("--count", default=0, hidden=True)
@click.option("--first", default=1, hidden=True)
def main(
    rounds: int,
    rate: int,
    seconds: float,
    idle: bool,
    check: bool,
    port: int | None,
    count: int,
    first: int,
) -> None:
    """How much longer local messages take while a link is busy."""
    if port is not None:
        send(port, rate, count, first)
        return
    programs = build(ROOT / ".cache/bench")
    pairs: list[tuple[Round, Round]] = []
    step = int(max(rate, LOCAL) * (seconds + 2))
    link = free_port()
    with tempfile.TemporaryDirectory(prefix="bccnd-link-") as name, host(Path(name), link, idle=idle) as near:
        for number in range(rounds):
            quiet = measure(programs, near, link, 0, seconds, 1 + 2 * number * step)
            busy = measure(programs, near, link, rate, seconds, 1 + (2 * number + 1) * step)
            pairs.append((quiet, busy))
            click.echo(
                f"round {number + 1}: without p50 {quiet.p50:.0f} p99 {quiet.p99:.0f} us; with p50 {busy.p50:.0f} "
                f"p99 {busy.p99:.0f} us, {busy.lost} lost; for each over the link {busy.daemon_ns / 1000:.1f} us "
                f"of the daemon's time, with the local ones, and {busy.gateway_ns / 1000:.1f} us of the gateway's"
            )
    p50, p99 = ([getattr(busy, name) / getattr(quiet, name) for quiet, busy in pairs] for name in ("p50", "p99"))
    click.echo(
        f"with {rate} messages a second over a link, of local messages: p50 x{median(p50):.2f}, p99 x{median(p99):.2f} "
        f"({min(p99):.2f} to {max(p99):.2f}); {os.cpu_count()} processors"
    )
    if check and median(p99) > 1.5:
        raise click.ClickException("p99 rises by more than a half")


if __name__ == "__main__":
    main()
