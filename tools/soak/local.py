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
from tests.support import BROADCAST, PATIENCE, ROOT, Closing, free_port
from tools.soak.measure import sample

#: programs of the hostile user
PROGRAMS: Final = 2
HOSTILE: Final = 4001
ORDINARY: Final = 4002
#: seconds of processor time within which the daemon answers
SOON: Final = 0.1
#: what the hostile user may make the daemon hold, as it is configured here, and what the daemon takes by itself
PATTERNS_MB: Final = 16
QUEUE_MB: Final = 16
OWN_MB: Final = 64
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
    before, begun = spent(), time.monotonic()
    sock.send({frames.request(frames.SYNC, b"x")!r})
    while sock.recv(1 << 20) != {frames.control(frames.SYNC, b"x")!r}:
        pass
    print(spent() - before, time.monotonic() - begun, flush=True)
"""


class Attack(Closing):
    """The daemon, the hostile programs and the ordinary one."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._stack = ExitStack()
        folder.chmod(0o755)
        self.daemon = Daemon(folder / "host", start=False)
        self.daemon.folder.chmod(0o755)
        segment = {"address": BROADCAST, "port": free_port()}
        self.daemon.configure({"segments": [segment], "bus": {"path": str(self.daemon.bus), **SETTINGS}})
        self.daemon.start()
        self._stack.enter_context(self.daemon)
        bus = str(self.daemon.bus)
        self.probe = self._program([sys.executable, "-c", PROBE, bus, str(self.daemon.pid)], ORDINARY)
        self.before = self.memory()
        self.hostile = [
            self._program([sys.executable, "-m", "tools.soak.user", bus, f"{seed}/{number}"], HOSTILE)
            for number in range(PROGRAMS)
        ]

    def _program(self, command: list[str], uid: int) -> subprocess.Popen[str]:
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
        self._stack.enter_context(program)
        self._stack.callback(program.kill)
        return program

    def memory(self) -> int:
        found = sample(self.daemon.pid)
        return found.rss if found is not None else 0

    def ask(self) -> tuple[float, float]:
        """Have the daemon answer: the seconds of processor time that it has spent until then, and the seconds."""
        assert self.probe.stdin is not None
        assert self.probe.stdout is not None
        self.probe.stdin.write("\n")
        self.probe.stdin.flush()
        ready, _, _ = select.select([self.probe.stdout], [], [], PATIENCE)
        assert ready, f"the daemon has not answered for {PATIENCE:.0f} s"
        spent, passed = map(float, self.probe.stdout.readline().split())
        return spent, passed

    def close(self) -> None:
        self._stack.close()


def attack(folder: Path, seconds: float, seed: int) -> tuple[list[str], dict[str, object]]:
    """Run it: what is wrong, and figures."""
    spent: list[float] = []
    passed: list[float] = []
    with Attack(folder, seed) as run:
        most = 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for series, found in zip((spent, passed), run.ask(), strict=True):
                series.append(found)
            most = max(most, run.memory())
            time.sleep(0.02)
        ended = [program.args for program in run.hostile if program.poll() is not None]
        daemon = run.daemon
        figures: dict[str, object] = {
            "answers": len(spent),
            "processor time before an answer, median and most, in ms": _median_and_most(spent),
            "time until an answer, median and most, in ms": _median_and_most(passed),
            "memory before and at most, in MB": (run.before >> 20, most >> 20),
            "published": daemon.metric("published_total"),
            "subscriptions": daemon.metric("subscriptions"),
        }
        faults = [f"an answer took {one:.3f} s of processor time" for one in spent if one > SOON]
        faults += [f"a hostile program has ended: {one!r}" for one in ended]
        if most - run.before > (PATTERNS_MB + QUEUE_MB) * 2 + OWN_MB << 20:
            faults.append(f"the daemon has grown from {run.before >> 20} to {most >> 20} MB")
        if "bug" in daemon.output():
            faults.append("the daemon has met a bug: " + daemon.output()[-2000:])
    return faults, figures


def _median_and_most(seconds: list[float]) -> tuple[float, float]:
    return round(1000 * sorted(seconds)[len(seconds) // 2], 2), round(1000 * max(seconds), 1)


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
