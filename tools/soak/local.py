"""A hostile user of this host beside an ordinary one: `python -m tools.soak.local [--seconds N] [--seed N]`.

The ordinary user asks for `!/bccn/sync` again and again. An answer is late by the processor time that the daemon has
spent on others before it: how long the machine had the daemon wait for a processor is another matter.
"""

from __future__ import annotations

import argparse
import random
import select
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bccnd.core.wire import frames
from tests.e2e.harness import Daemon
from tests.support import BROADCAST, PATIENCE, ROOT, free_port
from tools.bench.programs import kib_of

#: programs of the hostile user
PROGRAMS: Final = 2
HOSTILE, ORDINARY = 4001, 4002
#: seconds of processor time within which the daemon answers
SOON: Final = 0.1
#: what the hostile user may make the daemon hold, as it is configured here, and what the daemon takes by itself
PATTERNS_MB, QUEUE_MB, OWN_MB = 16, 16, 64
SETTINGS: Final = {
    "mode": 0o666,
    "max_clients": 200,
    "user": {"clients": 100, "subscriptions": PATTERNS_MB << 10, "queue_bytes": QUEUE_MB << 20},
}

PROBE: Final = f"""
import socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
def spent():
    return int(open("/proc/" + sys.argv[2] + "/schedstat").read().split()[0]) * 1e-9
while sys.stdin.readline():
    before = spent()
    sock.send({frames.request(frames.SYNC, b"x")!r})
    while sock.recv(1 << 20) != {frames.control(frames.SYNC, b"x")!r}:
        pass
    print(spent() - before, flush=True)
"""


def start(stack: ExitStack, command: list[str], uid: int) -> subprocess.Popen[str]:
    """Start a program as a user; it ends with the stack."""
    program = subprocess.Popen(
        command,
        user=uid,
        group=uid,
        extra_groups=[],
        cwd=ROOT,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(program)
    stack.callback(program.kill)
    return program


def ask(probe: subprocess.Popen[str]) -> float:
    """Have the daemon answer; return the seconds of processor time that it has spent until then."""
    assert probe.stdin
    assert probe.stdout
    probe.stdin.write("\n")
    probe.stdin.flush()
    ready, _, _ = select.select([probe.stdout], [], [], PATIENCE)
    assert ready, f"the daemon has not answered for {PATIENCE:.0f} s"
    return float(probe.stdout.readline())


def attack(folder: Path, seconds: float, seed: int) -> tuple[list[str], dict[str, object]]:
    """Run it: what is wrong, and figures."""
    spent: list[float] = []
    folder.chmod(0o755)
    daemon = Daemon(folder / "host", start=False)
    daemon.folder.chmod(0o755)
    segment = {"address": BROADCAST, "port": free_port()}
    daemon.configure({"segments": [segment], "bus": {"path": str(daemon.bus), **SETTINGS}})
    daemon.start()
    with ExitStack() as stack:
        stack.enter_context(daemon)
        bus = str(daemon.bus)
        probe = start(stack, [sys.executable, "-c", PROBE, bus, str(daemon.pid)], ORDINARY)
        before = most = kib_of(daemon.pid) >> 10
        commands = [[sys.executable, "-m", "tools.hostile", bus, f"{seed}/{one}", "attack"] for one in range(PROGRAMS)]
        programs = [start(stack, command, HOSTILE) for command in commands]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            spent.append(ask(probe))
            most = max(most, kib_of(daemon.pid) >> 10)
            time.sleep(0.02)
        times = round(1000 * sorted(spent)[len(spent) // 2], 2), round(1000 * max(spent), 1)
        figures: dict[str, object] = {
            "answers": len(spent),
            "processor time before an answer, median and most, in ms": times,
            "memory before and at most, in MB": (before, most),
            "published": daemon.metric("published_total"),
            "subscriptions": daemon.metric("subscriptions"),
        }
        faults = [f"an answer took {one:.3f} s of processor time" for one in spent if one > SOON]
        faults += [f"a hostile program has ended: {one.args!r}" for one in programs if one.poll() is not None]
        if most - before > (PATTERNS_MB + QUEUE_MB) * 2 + OWN_MB:
            faults.append(f"the daemon has grown from {before} to {most} MB")
        if "bug" in daemon.output():
            faults.append("the daemon has met a bug: " + daemon.output()[-2000:])
    return faults, figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bccnd-user-") as folder:
        faults, figures = attack(Path(folder), given.seconds, given.seed)
    for name, value in {"seed": given.seed, **figures}.items():
        print(f"{name}: {value}")
    for fault in faults:
        print(f"FAULT {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
