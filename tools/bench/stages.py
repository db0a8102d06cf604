"""What one message costs when the daemon was idle before it, by stage: `python -m tools.bench.stages`.

Counts the instructions of the real daemon with valgrind's callgrind (two minutes). The kernel's part is not counted.
SHA-256 has more instructions here than on a processor with instructions for it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
#: a datagram from another host, and a local publish with its returned broadcast
CASES: Final = ("datagram", "publish")

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


def read_costs(profile: Iterator[str]) -> Iterator[tuple[str, int]]:
    """Read (function with its library, executions) of each instruction from a profile with ``--dump-instr=yes``."""
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
            if not inclusive:
                yield f"{function} {library}", int(line.split()[2])
            inclusive = False


def control(pid: int, on: bool) -> None:
    done = subprocess.run(
        ["callgrind_control", "-i", "on" if on else "off", str(pid)], capture_output=True, timeout=60, check=False
    )
    if done.returncode:
        sys.exit(f"callgrind_control failed: {done.stderr.decode().strip()}")


def measure(folder: Path, case: str) -> Counter[str]:
    """Run a case with one client; return the instructions of a message by stage, of what at least every second message
    went through."""
    profile = folder / "profile"
    prefix = ["valgrind", "--tool=callgrind", "--log-file=/dev/null", f"--callgrind-out-file={profile}"]
    options = ["--instr-atstart=no", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]
    options += ["--collect-atstart=no", *(f"--toggle-collect={name}" for name in COUNTED)]
    daemon = Daemon(folder, {"heartbeat": {"interval": 0}}, prefix=[*prefix, *options], start=False, patience=120)
    daemon.configure({"integrity": daemon.with_key(KEY)})
    daemon.start()
    payload = b"x" * (SIZE - 70)
    with daemon, Wire(daemon.port, BROADCAST) as wire:
        client, publisher = daemon.raw(), daemon.raw()
        client.send(b"SUB bench/")
        wait(lambda: daemon.metric("subscriptions") == 1, "the subscription")
        for number in range(1, 2 * COUNT + 1):
            if number == COUNT + 1:
                control(daemon.pid, True)
            channel = f"bench/c{number % 16}"
            if case == "publish":
                publisher.send(b"MSG %b\0%b" % (channel.encode(), payload))
            else:
                wire.send(datagram("other/sender/1", number, channel, payload, KEY))
            client.recv(1 << 16)
            time.sleep(PAUSE)
        control(daemon.pid, False)
        client.close()
        publisher.close()
        daemon.stop()
    found: Counter[str] = Counter()
    with profile.open() as lines:
        for function, cost in read_costs(lines):
            if cost >= COUNT / 2:
                found[next(name for name, pattern in STAGES if re.search(pattern, function))] += cost
    return found


def main() -> None:
    if shutil.which("valgrind") is None:
        sys.exit("there is no valgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="bccnd-stages-") as name:
        found = [measure(Path(name) / case, case) for case in CASES]
    rows = [[stage, *(f"{costs[stage] / COUNT:,.0f}" for costs in found)] for stage, _ in STAGES]
    rows.append(["all", *(f"{costs.total() / COUNT:,.0f}" for costs in found)])
    print(*table(["stage", *CASES], rows, 1), sep="\n")


if __name__ == "__main__":
    main()
