"""The recorder's share: a real daemon, a sender at a rate, a recorder; processor time for a record, losses, memory."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import pyarrow.parquet as pq

from tests.e2e.harness import Daemon, Wire, datagram
from tests.e2e.recorders import Recorder, files
from tests.recorder.material import table
from tools.bench.procs import family, kib_of

#: for which is sent
SECONDS: Final = 20.0


def processor(pid: int) -> float:
    """Seconds that a process has had so far, with those that it has started."""
    stats = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in family(pid)]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def send(wire: Wire, rate: int) -> int:
    """Numbers of 50 sources on 20 channels, 100 bytes of payload."""
    sent, started = 0, time.monotonic()
    while (passed := time.monotonic() - started) < SECONDS:
        while sent < passed * rate:
            sent += 1
            wire.send(datagram(f"host/program/{sent % 50}", sent, f"bench/{sent % 20}", b"x" * 100))
        time.sleep(0.0005)
    return sent


@click.command(help=__doc__)
@click.option("--rate", default=20_000, show_default=True, help="Datagrams a second.")
def main(rate: int) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        journal = Path(name) / "journal"
        settings = {"recorder": {"journal": str(journal), "rotate": "5s"}}
        with Daemon(Path(name) / "a", settings) as daemon, Recorder(daemon) as recorder, Wire(daemon.port) as wire:
            pid = recorder.pid
            before = spent = processor(pid)
            sent = send(wire, rate)
            time.sleep(0.5)
            memory = sum(kib_of(one, "VmHWM") for one in family(pid)) >> 10
            read = sum(daemon.verdicts().values())
            # The finishing of files counts, too.
            recorder.running.terminate()
            while not recorder.ended():
                with suppress(OSError, ValueError, IndexError):
                    spent = max(spent, processor(pid))
                time.sleep(0.005)
        recorded = sum(pq.read_metadata(path).num_rows for path in files(journal))
        (session,) = table(journal, "sessions")
    spent -= before
    click.echo(f"sent {sent}, the daemon read {read}, in the journal {recorded}")
    click.echo(f"lost: {session['socket_drops']} by the kernel, {session['tap_gaps']} between daemon and recorder")
    click.echo(f"{spent / recorded * 1e6:.1f} us of processor for a record, {memory} MiB at most")


if __name__ == "__main__":
    main()
