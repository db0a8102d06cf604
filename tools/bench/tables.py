"""What the tables of a large journal and the report of a small one cost, and whether they are true.

`python -m tools.bench.tables` prints a table of figures and the bounds that they break. `--only` chooses some.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import click

from examples.fleet_model import Fleet, Loss, Source
from examples.simulation import write
from tests.support import ROOT
from tools.bench.fleet_rows import cells, make
from tools.bench.procs import Highest, family, kib_of

#: about so many rows, with restarts, second journals, and ends of days; and of a large journal
SMALL: Final = 3_000_000
LARGE: Final = 11_000_000
#: seconds that a report of a journal of about 1,000 rows may take on its first run
REPORT: Final = 2.0
#: seconds after which a command hangs
LONGEST: Final = 7200
EMBEDDED: Final = ("--embedded",)
SPARK: Final = ("--master", "local[2]")

BCCN: Final = [sys.executable, "-c", "import sys; sys.argv[0] = 'bccn'; from bccnd.cli.main import main; main()"]


@dataclass(frozen=True)
class Case:
    """A journal, as a recorder writes it (``is_sorted``) or as others may, the driver, and the seconds it may take."""

    name: str
    rows: int
    driver: tuple[str, ...]
    bound: float
    is_sorted: bool = True


CASES: Final = (
    Case("small embedded", SMALL, EMBEDDED, 4.0),
    Case("small on Spark", SMALL, SPARK, 18.0),
    Case("large embedded", LARGE, EMBEDDED, 12.0),
    Case("large on Spark", LARGE, SPARK, 28.0),
    Case("large embedded, not sorted", LARGE, EMBEDDED, 16.0, is_sorted=False),
    Case("large on Spark, not sorted", LARGE, SPARK, 40.0, is_sorted=False),
)


def run_command(*words: str, memory: Callable[[int], int], say: bool = False) -> tuple[Mapping[str, Any], int]:
    """Run a command of the pipeline; return its summary, and the most ``memory`` of its process."""
    began = time.monotonic()
    with subprocess.Popen(
        [*BCCN, "pipeline", *words, "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        assert running.stderr
        late = threading.Timer(LONGEST, running.kill)
        late.daemon = True
        late.start()
        held = Highest(lambda: memory(running.pid), 0.2)
        held.start()
        for line in running.stderr:
            if say:
                click.echo(f"  {time.monotonic() - began:6.1f} s  {line.rstrip()}", err=True)
        output = running.stdout.read()
        most = held.stop()
        running.wait(LONGEST)
        late.cancel()
    if running.returncode:
        raise click.ClickException(f"the run has failed, or was killed after {LONGEST} s")
    return json.loads(output.strip().splitlines()[-1]), most


def judge(bounds: Sequence[tuple[str, float, float]]) -> NoReturn:
    """Print figures beside their bounds, and exit; with status 1 if one is broken."""
    click.echo(f"\n{'figure':<44}{'value':>9}{'bound':>9}")
    for name, value, bound in bounds:
        click.echo(f"{name:<44}{value:>9.2f}{bound:>9.2f}{'  broken' if value > bound else ''}")
    sys.exit(any(value > bound for _, value, bound in bounds))


def measure(folder: str, case: Case) -> list[tuple[str, float, float]]:
    """Make the tables of a case; return its figures and their bounds."""
    journal, tables = f"{folder}/{case.rows}-{case.is_sorted}", f"{folder}/tables-{CASES.index(case)}"
    click.echo(f"{case.name}: making a journal of about {case.rows:,} rows", err=True)
    made = make(journal, case.rows, mixed=True, is_sorted=case.is_sorted)
    began = time.monotonic()
    words = ("build", journal, "--out", tables, *case.driver)
    _, most = run_command(*words, memory=lambda pid: sum(map(kib_of, family(pid))), say=True)
    seconds = time.monotonic() - began
    found = cells(tables)
    wrong = sum(found.get(key) != made.truth.get(key) for key in found.keys() | made.truth.keys())
    rows = sum(made.of_journal.values())
    click.echo(f"{case.name}: {rows:,} rows, {seconds:.1f} s, {most >> 10:,} MiB, {wrong} of {len(made.truth):,} wrong")
    return [(f"{case.name}: seconds", seconds, case.bound), (f"{case.name}: wrong cells", float(wrong), 0.0)]


def report(folder: str) -> float:
    """Seconds of the first `bccn report` of a small journal."""
    source = Source("one/meter", "one", rate=25.0, channels=("meter",))
    write(Fleet(("one", "two"), (source,), duration=20.0, losses=(Loss("two", probability=0.1),)), f"{folder}/demo")
    words = [*BCCN, "report", f"{folder}/demo", "--out", f"{folder}/page"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    subprocess.run(words, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=LONGEST)
    return time.monotonic() - began


@click.command()
@click.option("--only", multiple=True, metavar="WORD", help="Measure only cases with this in their name.")
def main(only: tuple[str, ...]) -> None:
    """What the tables of a large journal and the report of a small one cost, and whether they are true."""
    bounds: list[tuple[str, float, float]] = []
    for case in CASES:
        if not only or any(word in case.name for word in only):
            with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
                bounds += measure(folder, case)
    if not only or "report" in only:
        with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
            bounds.append(("report of a small journal: seconds", report(folder), REPORT))
    judge(bounds)


if __name__ == "__main__":
    main()
