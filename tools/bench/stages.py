"""What one message costs when the daemon was idle before it, by stage: `python -m tools.bench.stages`.

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tests.e2e.harness import Daemon, Wire, wait
from tests.support import datagram
from tools.bench.figures import table
from tools.bench.relays import BROADCAST, KEY, SIZE

#: datagrams, and seconds between them
COUNT: Final = 200
PAUSE: Final = 0.01
#: the functions that are counted, with what they call: those that wait, and that handle an event of a segment and of a
#: client
COUNTED: Final = (
    "__pyx_f_5bccnd_6native_6system_6poller_6Poller_wait",
    "__pyx_f_5bccnd_3net_4loop_4Loop__timeout",
    "__pyx_f_5bccnd_3bus_8incoming_14segment_reader_13SegmentReader_on_events",
    "__pyx_f_5bccnd_3bus_8incoming_13packet_reader_12ClientEvents_on_events",
)
#: a datagram from another host, the same for clients in batch mode, and a local publish with its returned broadcast
CASES: Final = ("datagram", "batch", "publish")
#: bytes of a line of the processor's cache
LINE: Final = 64

#: stage by the name of a function, the first pattern that is found
STAGES: Final = (
    ("wait", r"3net_4loop|poller|epoll"),
    ("receive", r"segment_reader|packet_reader|8Receiver|PacketReceiver|recvmmsg"),
    ("check the sum", r"integrity|hmac|SHA256|sha256|OPENSSL_cleanse|libcrypto"),
    (
        "parse, judge",
        r"receiving_7ingress|buffers_(6header|14sent)|memchr|tracking_5dedup|tracking_12source_table|count(er)?s",
    ),
    ("look up", r"dict_by_slice|matching_6routes"),
    (
        "send",
        r"fanout|deliveries|receivers|client_queues|publisher|datagram_builder|8datagram|Sender|send_to|\bsend(mmsg|to)?\b",
    ),
    ("clocks", r"clock_gettime|vdso"),
    ("Python objects and code", r""),
)


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


def by_stage(costs: Sequence[tuple[str, int, int]]) -> dict[str, tuple[float, int]]:
    """Return the instructions of one message for each stage, and the lines of code in which they lie."""
    instructions: dict[str, float] = defaultdict(float)
    lines: dict[str, set[int]] = defaultdict(set)
    for function, address, cost in costs:
        stage = stage_of(function)
        instructions[stage] += cost / COUNT
        lines[stage].add(address // LINE)
    return {name: (instructions[name], len(lines[name])) for name, _ in STAGES}


def control(pid: int, on: bool) -> None:
    done = subprocess.run(
        ["callgrind_control", "-i", "on" if on else "off", str(pid)], capture_output=True, timeout=60, check=False
    )
    if done.returncode:
        raise click.ClickException(f"callgrind_control failed: {done.stderr.decode().strip()}")


def measure(folder: Path, case: str, clients: int) -> list[tuple[str, int, int]]:
    """Run a case with so many clients; return the costs of what at least every second message went through."""
    profile = folder / "profile"
    prefix = ["valgrind", "--tool=callgrind", "--log-file=/dev/null", f"--callgrind-out-file={profile}"]
    options = ["--instr-atstart=no", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]
    options += ["--collect-atstart=no", *(f"--toggle-collect={name}" for name in COUNTED)]
    daemon = Daemon(folder, {"heartbeat": {"interval": 0}}, prefix=[*prefix, *options], start=False, patience=120)
    daemon.configure({"integrity": daemon.with_key(KEY)})
    daemon.start()
    payload = b"x" * (SIZE - 70)
    with daemon, Wire(daemon.port, BROADCAST) as wire:
        connected = [daemon.raw() for _ in range(clients)]
        for client in connected:
            client.send(b"SUB bench/")
            if case == "batch":
                client.send(b"CMSG !/bccn/batch/on\0")
        publisher = daemon.raw()
        wait(lambda: daemon.metric("subscriptions") == clients, "the subscriptions")
        for number in range(1, 2 * COUNT + 1):
            if number == COUNT + 1:
                control(daemon.pid, True)
            channel = f"bench/c{number % 16}"
            if case == "publish":
                publisher.send(b"MSG %b\0%b" % (channel.encode(), payload))
            else:
                wire.send(datagram("other/sender/1", number, channel, payload, KEY))
            for client in connected:
                client.recv(1 << 16)
            time.sleep(PAUSE)
        control(daemon.pid, False)
        for client in [*connected, publisher]:
            client.close()
        daemon.stop()
    with profile.open() as lines:
        return [one for one in read_costs(lines) if one[2] >= COUNT / 2]


@click.command()
@click.option("--clients", type=int, default=1, help="Clients that get each message.")
def main(clients: int) -> None:
    """Count what a message costs by stage when nothing else is going on (two minutes; needs valgrind)."""
    if shutil.which("valgrind") is None:
        raise click.ClickException("there is no valgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="bccnd-stages-") as name:
        costs_of = {case: measure(Path(name) / case, case, clients) for case in CASES}
    found = {case: by_stage(costs) for case, costs in costs_of.items()}
    for case in CASES:
        found[case]["all"] = tuple(map(sum, zip(*found[case].values(), strict=True)))  # type: ignore[assignment]
    stages = [*(name for name, _ in STAGES), "all"]
    rows = ([stage, *(f"{number:,.0f}" for case in CASES for number in found[case][stage])] for stage in stages)
    print(*table(["stage", *(head for case in CASES for head in (case, "lines"))], rows, 1), sep="\n")


if __name__ == "__main__":
    main()
