"""The recorder's share: a real daemon, a sender at a rate, a recorder; processor time for a record, losses, memory.

    python -m tests.bench.record --rate 20000 --seconds 20

Figures are those of the whole process, the finishing of its files among them; what is in the journal is counted in
the journal.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from tests.bench.procs import family, kib_of
from tests.e2e.harness import Daemon, Wire, datagram
from tests.e2e.recorders import Recorder, files
from tests.recorder.material import table

_TICKS = os.sysconf("SC_CLK_TCK")


def processor(pid: int) -> float:
    """Seconds that a process has had so far, with those that it has started."""
    found = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        found += int(fields[11]) + int(fields[12])
    return found / _TICKS


def send(wire: Wire, rate: int, seconds: float) -> int:
    """Numbers of 50 sources on 20 channels, 100 bytes of payload."""
    sent, started = 0, time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        while sent < passed * rate:
            sent += 1
            wire.send(datagram(f"host/program/{sent % 50}", sent, f"bench/{sent % 20}", b"x" * 100))
        time.sleep(0.0005)
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=20_000, help="datagrams a second (20000)")
    parser.add_argument("--seconds", type=float, default=20, help="how long (20)")
    parser.add_argument("--rotate", default="5s", help="how often a file is finished (5s)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        journal = Path(name) / "journal"
        settings = {"recorder": {"journal": str(journal), "rotate": chosen.rotate}}
        with Daemon(Path(name) / "a", settings) as daemon, Recorder(daemon) as recorder, Wire(daemon.port) as wire:
            assert recorder.process is not None
            pid = recorder.process.pid
            before = processor(pid)
            started = time.monotonic()
            sent = send(wire, chosen.rate, chosen.seconds)
            rate = sent / (time.monotonic() - started)
            time.sleep(0.5)
            memory = sum(kib_of(one, "VmHWM") for one in family(pid)) >> 10
            read = sum(daemon.verdicts().values())
            recorder.process.terminate()
            spent = processor(pid)
            while recorder.process.poll() is None:
                try:
                    spent = max(spent, processor(pid))
                except (OSError, ValueError, IndexError):
                    break
                time.sleep(0.005)
            recorder.process.wait()
        recorded = sum(pq.read_metadata(path).num_rows for path in files(journal))
        (session,) = table(journal, "sessions")
        spent -= before
        size = sum(path.stat().st_size for path in files(journal))
        print(f"sent {sent} at {rate:.0f} a second, the daemon read {read}, in the journal {recorded}")
        print(f"lost: {session['socket_drops']} by the kernel, {session['tap_gaps']} between daemon and recorder")
        print(f"{spent / recorded * 1e6:.1f} us of processor for a record: {recorded / spent:.0f} a second on one core")
        print(f"{memory} MiB at most, {size / recorded:.1f} bytes a record on disk")


if __name__ == "__main__":
    main()
