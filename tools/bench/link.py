"""What a busy link costs the programs of a host: `python -m tools.bench.link`."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import click

from tests.e2e.harness import PATIENCE, Daemon, datagram, wait
from tests.support import free_port
from tools.bench.cases import BROADCAST, KEY, SIZE
from tools.bench.procs import cpu_of, family
from tools.bench.programs import ROOT, build

#: messages a second that are timed, and over the link
LOCAL: Final = 2000
RATE: Final = 5000
#: rounds of each kind, by turns, and seconds that are timed in each
ROUNDS: Final = 5
SECONDS: Final = 3
#: NNG's greeting: version 0 of BUS
HELLO: Final = b"\0SP\0\0\x70\0\0"
#: messages over the link in one write, and the seconds from one to the next
EACH: Final = 10
BEAT: Final = EACH / RATE
#: of a round over the link: it begins before what is timed, and ends behind it
CARRIED: Final = RATE * (SECONDS + 1)


def gateway(daemon: Daemon) -> int:
    """The process that has the link."""
    return family(daemon.pid)[1]


class Round(NamedTuple):
    """What came of one round; microseconds, and processor time for a message over the link in nanoseconds."""

    p50: float
    p99: float
    lost: int
    daemon_ns: float
    gateway_ns: float


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


def carried(number: int) -> bytes:
    """A message as it travels over a link."""
    around = len(datagram("far/sender/1", number, "far/c", b"x" * 100, KEY)) - 100
    raw = datagram("far/sender/1", number, "far/c", b"x" * (SIZE - around), KEY)
    return struct.pack(">Q", len(raw)) + raw


def send(port: int, first: int, ready: Connection) -> None:
    """The other end of the link: messages at an even pace, made beforehand."""
    packets = [b"".join(carried(first + at + i) for i in range(EACH)) for at in range(0, CARRIED, EACH)]
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(HELLO)
        sock.recv(len(HELLO), socket.MSG_WAITALL)
        ready.send(True)
        ready.recv()
        start = time.monotonic()
        for number, packet in enumerate(packets):
            time.sleep(max(0.0, start + number * BEAT - time.monotonic()))
            sock.sendall(packet)
            try:
                while sock.recv(1 << 16, socket.MSG_DONTWAIT):  # what goes the other way is of no interest
                    pass
            except BlockingIOError:
                pass
        time.sleep(0.5)


def measure(programs: Path, near: Daemon, link: int, first: int, *, busy: bool) -> Round:
    """One round, with messages over the link or without."""
    count = LOCAL * SECONDS
    drain = [str(programs / "drain"), "-P", "seq", "-u", str(near.bus), "-N", str(count), "-s", "bench/"]
    flood = [str(programs / "flood"), "-p", str(near.port), "-a", BROADCAST, "-r", str(LOCAL), "-n", str(count), "-t"]
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=send, args=(link, first, theirs))
    if busy:
        other.start()
        ours.recv()
        wait(lambda: near.metric("gateway_peers", gateway="nng") == 1, "the link")
    accepted = near.metric("datagrams_total", segment="nng", verdict="accepted")
    with subprocess.Popen(drain, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        client.stdout.readline()
        if busy:
            ours.send(True)
            time.sleep(0.5)
        pids = (near.pid, gateway(near))
        before = [cpu_of(pid) for pid in pids]
        subprocess.run([*flood, "-s", str(first)], stdout=subprocess.DEVNULL, check=True)
        used = [cpu_of(pid) - begun for pid, begun in zip(pids, before, strict=True)]
        output = json.loads(client.stdout.read().strip().splitlines()[-1])
    if busy:
        other.join(PATIENCE)
    if output["n"] != count:
        raise click.ClickException(f"{count - output['n']} of the local messages were lost: {output}")
    lost = busy * CARRIED - int(near.metric("datagrams_total", segment="nng", verdict="accepted") - accepted)
    timed = (RATE if busy else LOCAL) * SECONDS
    return Round(output["latency"]["p50_us"], output["latency"]["p99_us"], lost, used[0] / timed, used[1] / timed)


@click.command()
@click.option("--idle", is_flag=True, help="Let the gateway have only what nobody else wants of the processors.")
def main(idle: bool) -> None:
    """How much longer local messages take while a link is busy."""
    programs = build(ROOT / ".cache/bench")
    pairs: list[tuple[Round, Round]] = []
    link = free_port()
    with tempfile.TemporaryDirectory(prefix="bccnd-link-") as name, host(Path(name), link, idle=idle) as near:
        for number in range(ROUNDS):
            quiet, busy = (
                measure(programs, near, link, 1 + (2 * number + kind) * 2 * CARRIED, busy=bool(kind)) for kind in (0, 1)
            )
            pairs.append((quiet, busy))
            click.echo(
                f"round {number + 1}: without p50 {quiet.p50:.0f} p99 {quiet.p99:.0f} us; with p50 {busy.p50:.0f} "
                f"p99 {busy.p99:.0f} us, {busy.lost} lost; for each over the link {busy.daemon_ns / 1000:.1f} us "
                f"of the daemon's time, with the local ones, and {busy.gateway_ns / 1000:.1f} us of the gateway's"
            )
    p50, p99 = ([getattr(busy, name) / getattr(quiet, name) for quiet, busy in pairs] for name in ("p50", "p99"))
    click.echo(
        f"with {RATE} messages a second over a link, of local messages: p50 x{median(p50):.2f}, p99 x{median(p99):.2f} "
        f"({min(p99):.2f} to {max(p99):.2f}); {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    main()
