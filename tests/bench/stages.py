"""What one message costs when the daemon was idle before it, by stage: `python -m tests.bench.stages`.

Counts the instructions of the real daemon with valgrind's callgrind, and the lines of 64 bytes of code in which they
lie: after a pause each of those is fetched anew, which is most of what such a message costs. The kernel's part is not
counted. SHA-256 has more instructions here than on a processor with instructions for it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from tests.bench.cases import BROADCAST, KEY, SIZE
from tests.e2e.harness import Daemon, Wire, wait
from tests.support import datagram

#: datagrams, and seconds between them
COUNT: Final = 200
PAUSE: Final = 0.01
#: the function that is counted, with what it calls
COUNTED: Final = "__pyx_f_5bccnd_3bus_14segment_reader_13SegmentReader__take"
#: bytes of a line of the processor's cache
LINE: Final = 64

#: stage by the name of a function, the first pattern that is found
STAGES: Final = (
    ("receive", r"segment_reader|8Receiver|recvmmsg|input_transaction"),
    ("check the sum", r"integrity|hmac8|SHA256|sha256|OPENSSL_cleanse|libcrypto"),
    ("parse, judge", r"4core_7ingress|native_4scan|memchr|4core_5dedup|4core_3lru|counters"),
    ("look up", r"slice_dict|4core_6routes"),
    ("send", r"3bus_6fanout|6Sender|fanout_groups|send_queues|\bsend(mmsg|to)?\b"),
    ("clocks", r"clock_gettime|vdso"),
    ("objects, memory", r""),
)


class Cost(NamedTuple):
    """Instructions of one message, and lines of code in which they lie."""

    instructions: float
    lines: int


def stage_of(function: str) -> str:
    return next(name for name, pattern in STAGES if re.search(pattern, function))


def read_costs(profile: Iterator[str]) -> Iterator[tuple[str, int, int]]:
    """Read (function with its library, address, instructions) from a profile with ``--dump-instr=yes``."""
    library = function = ""
    inclusive = False
    for line in profile:
        if line.startswith("ob="):
            library = line[3:].strip()
        elif line.startswith("fn="):
            function = line[3:].strip()
        elif line.startswith("calls="):
            inclusive = True
        elif line.startswith("0x"):
            address, _, cost = line.split()[:3]
            if not inclusive:
                yield f"{function} {library}", int(address, 16), int(cost)
            inclusive = False


def by_stage(profile: Iterator[str]) -> dict[str, Cost]:
    """Add up what at least every second message went through."""
    instructions: dict[str, float] = defaultdict(float)
    lines: dict[str, set[int]] = defaultdict(set)
    for function, address, cost in read_costs(profile):
        if cost >= COUNT / 2:
            stage = stage_of(function)
            instructions[stage] += cost / COUNT
            lines[stage].add(address // LINE)
    return {name: Cost(instructions[name], len(lines[name])) for name, _ in STAGES}


def control(pid: int, on: bool) -> None:
    done = subprocess.run(
        ["callgrind_control", "-i", "on" if on else "off", str(pid)], capture_output=True, check=False
    )
    if done.returncode:
        raise click.ClickException(f"callgrind_control failed: {done.stderr.decode().strip()}")


def measure(folder: Path, clients: int) -> dict[str, Cost]:
    """Count one run with so many clients."""
    profile = folder / "profile"
    options = ["--instr-atstart=no", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]
    options += ["--collect-atstart=no", f"--toggle-collect={COUNTED}"]
    daemon = Daemon(
        folder,
        {"heartbeat": {"interval": 0}},
        prefix=["valgrind", "--tool=callgrind", *options, "--log-file=/dev/null", f"--callgrind-out-file={profile}"],
        start=False,
        patience=120,
    )
    daemon.configure({"integrity": daemon.with_key(KEY)})
    daemon.start()
    raws = [datagram("other/sender/1", n, f"bench/c{n % 16}", b"x" * (SIZE - 70), KEY) for n in range(1, 2 * COUNT + 1)]
    with daemon, Wire(daemon.port, BROADCAST) as wire:
        connected = [daemon.raw() for _ in range(clients)]
        for client in connected:
            client.send(b"SUB bench/")
        wait(lambda: daemon.metric("subscriptions") == clients, "the subscriptions")
        for number, raw in enumerate(raws):
            if number == COUNT:
                control(daemon.pid, True)
            wire.send(raw)
            for client in connected:
                client.recv(1 << 16)
            time.sleep(PAUSE)
        control(daemon.pid, False)
        for client in connected:
            client.close()
        daemon.stop()
    with profile.open() as lines:
        return by_stage(lines)


@click.command()
@click.option("--clients", type=int, default=1, help="Clients that get each message.")
def main(clients: int) -> None:
    """Count what a message costs by stage when nothing else is going on (one minute; needs valgrind)."""
    if shutil.which("valgrind") is None:
        raise click.ClickException("there is no valgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="bccnd-stages-") as name:
        costs = measure(Path(name) / "daemon", clients)
    print("| stage | instructions | lines of code |\n| --- | --- | --- |")
    for stage, cost in costs.items():
        print(f"| {stage} | {cost.instructions:,.0f} | {cost.lines} |")
    total = [sum(column) for column in zip(*costs.values(), strict=True)]
    print(f"| all | {total[0]:,.0f} | {total[1]:,.0f} |")


if __name__ == "__main__":
    main()
