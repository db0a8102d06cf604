"""How long a daemon takes to be ready when it takes over 100,000 sources, against one that takes over none.

`python -m tools.bench.start` ends and starts two daemons in turn, as a service manager would; the memory is that of the
daemon that knows the sources.
"""

from __future__ import annotations

import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from tests.e2e.harness import Wire, wait
from tests.e2e.supervisor import Supervisor
from tools.bench.idle import SOURCES, introduce
from tools.bench.procs import kib_of

#: times that the start with sources may take of the start without; the most memory, in MB
LONGER: Final = 1.5
MEMORY: Final = 58.0
#: seconds after which a daemon has given back the memory that only its start needs
SETTLED: Final = 5.0


def restart(supervisor: Supervisor) -> float:
    """Seconds from the start of the next daemon until it is ready."""
    supervisor.end(signal.SIGTERM)
    began = time.monotonic()
    supervisor.start()
    return time.monotonic() - began


@click.command(help=__doc__)
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Starts of each daemon.")
def main(rounds: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder,
        Supervisor(Path(folder, "none")) as none,
        Supervisor(Path(folder, "many")) as many,
    ):
        none.start()
        many.start()
        with Wire(many.port) as wire:
            introduce(wire, SOURCES)
        wait(lambda: many.metric("sources") == SOURCES, "the daemon to know all sources")
        taken = [(restart(none), restart(many)) for _ in range(rounds)]
        assert many.metric("sources") == SOURCES
        assert many.process is not None
        time.sleep(SETTLED)
        memory = kib_of(many.process.pid) * 1024 / 1e6
    without, with_sources = (statistics.median(each) for each in zip(*taken, strict=True))
    ratio = with_sources / without
    click.echo(f"ready after {without:.2f} s without sources, {with_sources:.2f} s with {SOURCES:,}, {memory:.0f} MB")
    for what, value, bound in (("start with / without sources", ratio, LONGER), ("memory, MB", memory, MEMORY)):
        click.echo(f"{what:<30}{value:>8.2f}{bound:>8.2f}{'  broken' if value > bound else ''}")


if __name__ == "__main__":
    main()
