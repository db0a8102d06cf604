"""What a daemon without traffic takes, with no source known and with 100,000: processor time and memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from tests.e2e.harness import Daemon, Wire, datagram
from tools.bench import document, figures
from tools.bench.document import console
from tools.bench.procs import cpu_of, kib_of
from tools.bench.programs import ROOT
from tools.bench.runner import FIGURES

SOURCES = 100_000
#: of a daemon as it is shipped
REPORTS = {"reports": {"interval": "10s"}}
DAEMON = ROOT / ".venv/bin/bccnd"
#: so many datagrams are sent at a time, and read before the next are
BATCH = 200


def introduce(wire: Wire, sources: int) -> None:
    """Have a daemon hear so many sources once."""
    for number in range(sources):
        wire.send(datagram(f"host{number % 1000}/program/{number}", 1, "bench/x", b""))
        if number % BATCH == 0:
            time.sleep(0.005)


def measure(seconds: float, sources: int) -> tuple[float, float]:
    """Return the share of a core that a daemon takes after it has received from so many sources, and its MB."""
    with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder), REPORTS) as daemon, Wire(daemon.port) as wire:
        introduce(wire, sources)
        time.sleep(3)
        begin, began = cpu_of(daemon.pid), time.monotonic_ns()
        time.sleep(seconds)
        share = (cpu_of(daemon.pid) - begin) / (time.monotonic_ns() - began)
        return round(share, 4), round(kib_of(daemon.pid) * 1024 / 1e6)


@click.command(help=__doc__)
@click.option("--seconds", default=180.0, show_default=True, help="How long each of the two is watched.")
@FIGURES
def main(seconds: float, figures_file: Path | None) -> None:
    core, resident = measure(seconds, 0)
    console.print(f"idle                 {core:8.2%} of a core  {resident:4.0f} MB")
    core_many, resident_many = measure(seconds, SOURCES)
    console.print(f"{SOURCES:,} sources known {core_many:6.2%} of a core  {resident_many:4.0f} MB")
    if figures_file is not None:
        about = figures.about_run(document.now(), document.about_machine(), document.about_daemon(DAEMON), 1)
        found = {
            "about": {**about, "seconds": round(seconds)},
            "core": core,
            "resident_mb": resident,
            "core_100_000": core_many,
            "resident_mb_100_000": resident_many,
        }
        figures.write(figures_file, {"idle": found})


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.idle")
