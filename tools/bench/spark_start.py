"""What each way to start Spark sooner saves in `bccn report` of a small journal: `python -m tools.bench.spark_start`.

Runs with and without it take turns; the medians are compared. A ratio above 1 is what a report would take without it.
The first run on a machine makes the archive of Java's classes: what it takes is compared with a run without one.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from typing import Final

import click

from tests.support import ROOT
from tools.bench.spark import LONGEST, command_environment, wait_for_archive, write_small_journal

#: `bccn` with a line of Python before it
COMMAND: Final = """
import sys
import bccnd.pipeline.driver.spark_session as session
import bccnd.pipeline.driver.java_class_archive as archive
from bccnd.cli.main import main
{undo}
sys.argv[0] = "bccn"
main()
"""
UNDO: Final = {
    "as it is": "",
    "without the archive of Java's classes": "archive.options = lambda depends_on: ''",
    "with Java's optimizing compiler and usual collector": "session._SMALL = -1",
    "with programs that Spark compiles": "session._TINY = -1",
}


def run(folder: str, undo: str) -> float:
    """Seconds of a report."""
    words = [sys.executable, "-c", COMMAND.format(undo=undo), "report", f"{folder}/journal", "--out", f"{folder}/page"]
    began = time.monotonic()
    subprocess.run(words, cwd=ROOT, env=command_environment(folder), check=True, capture_output=True, timeout=LONGEST)
    return time.monotonic() - began


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Runs of each kind.")
def main(rounds: int) -> None:
    """Measure what each way to start Spark sooner saves."""
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
        write_small_journal(f"{folder}/journal")
        run(folder, UNDO["without the archive of Java's classes"])
        first = run(folder, "")
        wait_for_archive(folder)
        taken: dict[str, list[float]] = {name: [] for name in UNDO}
        for number in range(rounds):
            for name in sorted(UNDO, reverse=number % 2 == 1):
                taken[name].append(run(folder, UNDO[name]))
                click.echo(f"  {name}: {taken[name][-1]:.1f} s", err=True)
    medians = {name: statistics.median(each) for name, each in taken.items()}
    click.echo(f"a report: {medians['as it is']:.1f} s")
    for name, seconds in medians.items():
        click.echo(f"{name:<56}{seconds / medians['as it is']:>6.2f}")
    without = medians["without the archive of Java's classes"]
    click.echo(f"{'the first run, against one without an archive':<56}{first / without:>6.2f}")


if __name__ == "__main__":
    main()
