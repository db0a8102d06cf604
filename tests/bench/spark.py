"""What the tables of a large journal cost, and whether they are true: `python -m tests.bench.spark`.

Makes journals of 20 hosts with loss that is known exactly, has `bccn pipeline build` make all tables of them, and
compares every cell of link_loss with the truth. The exit status is 1 when a cell is wrong or a bound is broken.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Final

import click

from tests.bench.fleet_rows import cells, make
from tests.bench.procs import family, kib_of
from tests.support import ROOT

#: what ten times the rows may take at most, in times; seconds that ten million may take, on two cores
GROWTH: Final = 11.0
TEN_MILLION: Final = 60.0


@dataclass
class Run:
    """What one size has cost."""

    rows: int
    seconds: float
    build: float
    memory: int
    wrong: int


class Memory(threading.Thread):
    """The most that a process and those that it started have held at once, in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.most = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.5):
            self.most = max(self.most, 1024 * sum(kib_of(pid) for pid in family(self._pid)))


def _build(journal: str, tables: str, memory: str, say: bool) -> tuple[float, float, int]:
    """Seconds from start to end, those of the run itself, and the most memory."""
    code = "from bccnd.cli.tool import main; main()"
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", code, "pipeline", "build", journal, "--out", tables, "--json", "--memory", memory],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        assert running.stderr
        most = Memory(running.pid)
        most.start()
        for line in running.stderr:
            if say:
                click.echo(f"  {time.monotonic() - began:6.1f} s  {line.rstrip()}", err=True)
        summary = json.loads(running.stdout.read() or "{}")
        most.ended.set()
    if running.returncode:
        raise click.ClickException("the build has failed")
    return time.monotonic() - began, summary["seconds"], most.most


def measure(folder: str, rows: int, memory: str, *, steps: bool) -> Run:
    """Make a journal of about so many rows, and its tables."""
    journal, tables = f"{folder}/journal-{rows}", f"{folder}/tables-{rows}"
    click.echo(f"making a journal of about {rows:,} rows", err=True)
    made = make(journal, rows)
    seconds, build, most = _build(journal, tables, memory, steps)
    found = cells(tables)
    wrong = sum(found.get(key) != made.truth.get(key) for key in found.keys() | made.truth.keys())
    return Run(made.rows, seconds, build, most, wrong)


@click.command()
@click.option("--rows", multiple=True, type=int, default=(1_000_000, 10_000_000), show_default=True)
@click.option("--memory", default="2g", show_default=True, help="For Spark's process.")
@click.option("--steps", is_flag=True, help="Say what the build is at, and when.")
def main(rows: tuple[int, ...], memory: str, steps: bool) -> None:
    """What the tables of a large journal cost, and whether they are true."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
        for count in sorted(rows):
            runs.append(measure(folder, count, memory, steps=steps))
            one = runs[-1]
            click.echo(
                f"{one.rows:>12,} rows: all tables {one.build:7.1f} s ({one.seconds:.1f} s with the start of Spark), "
                f"at most {one.memory >> 20:,} MiB; wrong cells {one.wrong}"
            )
    broken = [f"{one.wrong} cells of {one.rows:,} rows are wrong" for one in runs if one.wrong]
    for less, more in itertools.pairwise(runs):
        growth = more.build / less.build / (more.rows / less.rows)
        click.echo(f"{more.rows / less.rows:.1f} times the rows take {more.build / less.build:.1f} times as long")
        if growth > GROWTH / 10:
            broken.append("time grows faster than rows")
    broken += [
        f"{one.rows:,} rows took {one.build:.1f} s"
        for one in runs
        if 9_000_000 < one.rows < 12_000_000 and one.build > TEN_MILLION
    ]
    for each in broken:
        click.echo(f"broken: {each}", err=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
