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


def start(uid: int, *words: str) -> subprocess.Popen[str]:
    """Start a program of Python as a user."""
    command, environment = [sys.executable, *words], {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        command, user=uid, group=uid, extra_groups=[], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )


def attack(folder: Path, seconds: float, seed: int) -> list[str]:
    """Attack a daemon; print figures, and return what is wrong."""
    folder.chmod(0o755)
    daemon = Daemon(folder / "host", start=False)
    daemon.folder.chmod(0o755)
    daemon.configure({"bus": SETTINGS})
    daemon.start()
    with daemon:
        bus, before = str(daemon.bus), kib_of(daemon.pid) >> 10
        probe = start(ORDINARY, "-c", PROBE, bus, str(daemon.pid), str(seconds))
        hostile = [start(HOSTILE, "-m", "tools.hostile", bus, f"{seed}/{n}", "attack") for n in range(PROGRAMS)]
        try:
            output, _ = probe.communicate(timeout=seconds + 2 * PATIENCE)
            faults = ["a hostile program has ended" for one in hostile if one.poll() is not None]
        finally:
            for one in (probe, *hostile):
                one.kill()
                one.wait()
        spent = sorted(map(float, output.split()))
        most = kib_of(daemon.pid, "VmHWM") >> 10
        print(f"{len(spent)} answers, after {1000 * spent[-1]:.1f} ms of processor time at most")
        print(f"{before} MB before, {most} MB at most, {daemon.metric('published_total'):.0f} messages published")
        faults += [f"an answer took {one:.3f} s of processor time" for one in spent if one > SOON]
        faults += ["the daemon has not answered"] if probe.returncode else []
        if most - before > (PATTERNS_MB + QUEUE_MB) * 2 + OWN_MB:
            faults.append(f"the daemon has grown from {before} to {most} MB")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="bccnd-user-") as folder:
        faults = attack(Path(folder), given.seconds, given.seed)
    print(*(f"FAULT {fault}" for fault in faults), sep="\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
