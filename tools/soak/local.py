"""A hostile user of this host beside an ordinary one: `python -m tools.soak.local [--seconds N] [--seed N]`.

The ordinary user asks for `!/bccn/sync` again and again. An answer is late by the processor time that the daemon has
spent on others before it: how long the machine had the daemon wait for a processor is another matter.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bccnd.core.wire import frames
from tests.e2e.harness import Daemon
from tests.support import PATIENCE, ROOT
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
#: asks until the time is over, and prints the processor time of the daemon before each answer; arguments: the bus, the
#: pid of the daemon, seconds
PROBE: Final = f"""
import socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.settimeout({PATIENCE})
sock.connect(sys.argv[1])
def spent():
    return int(open("/proc/" + sys.argv[2] + "/schedstat").read().split()[0]) * 1e-9
end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    before = spent()
    sock.send({frames.request(frames.SYNC, b"x")!r})
    while sock.recv(1 << 20) != {frames.control(frames.SYNC, b"x")!r}:
        pass
    print(spent() - before)
    time.sleep(0.02)
"""


def start(stack: ExitStack, uid: int, *words: str) -> subprocess.Popen[str]:
    """Start a program of Python as a user; it ends with the stack."""
    program = subprocess.Popen(
        [sys.executable, *words],
        user=uid,
        group=uid,
        extra_groups=[],
        cwd=ROOT,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(program)
    stack.callback(program.kill)
    return program


def attack(folder: Path, seconds: float, seed: int) -> tuple[list[str], dict[str, object]]:
    """Attack a daemon; return what is wrong, and figures."""
    folder.chmod(0o755)
    daemon = Daemon(folder / "host", start=False)
    daemon.folder.chmod(0o755)
    daemon.configure({"bus": SETTINGS})
    daemon.start()
    with daemon, ExitStack() as stack:
        bus, before = str(daemon.bus), kib_of(daemon.pid) >> 10
        probe = start(stack, ORDINARY, "-c", PROBE, bus, str(daemon.pid), str(seconds))
        programs = [
            start(stack, HOSTILE, "-m", "tools.hostile", bus, f"{seed}/{number}", "attack")
            for number in range(PROGRAMS)
        ]
        output, _ = probe.communicate(timeout=seconds + 2 * PATIENCE)
        spent = sorted(map(float, output.split()))
        most = kib_of(daemon.pid, "VmHWM") >> 10
        figures: dict[str, object] = {
            "answers": len(spent),
            "processor time before an answer, median, in ms": round(1000 * spent[len(spent) // 2], 2),
            "processor time before an answer, most, in ms": round(1000 * spent[-1], 1),
            "memory before and at most, in MB": (before, most),
            "published": daemon.metric("published_total"),
            "subscriptions": daemon.metric("subscriptions"),
        }
        faults = [f"an answer took {one:.3f} s of processor time" for one in spent if one > SOON]
        faults += ["the daemon has not answered"] if probe.returncode else []
        faults += ["a hostile program has ended" for one in programs if one.poll() is not None]
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
    print(*(f"{name}: {value}" for name, value in {"seed": given.seed, **figures}.items()), sep="\n")
    print(*(f"FAULT {fault}" for fault in faults), sep="\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
