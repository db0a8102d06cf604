"""What a message costs, beside the least that it can cost, beside other brokers, and as things grow.

The figures go to docs/figures.json, their only home; the tables are printed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from tests.support import free_port
from tools.bench import figures
from tools.bench.axes import FAN_OUT, GROWTH, Axis, Point, select
from tools.bench.clients import PROGRAMS
from tools.bench.idle import IDLE
from tools.bench.measure import Failed, Figures, leave_alone, machine_busy, own_busy, wait_until_quiet
from tools.bench.programs import ROOT, CannotBuild, build
from tools.bench.relays import Place

#: so often a run may fail for a reason that is no disturbance before it is believed
FAILURES: Final = 2
#: messages of a run at most, and of a quick one
MOST, FEW = 1_000_000_000, 4096
#: sets of axes that have a name
SETS: Final = {"relays": list(FAN_OUT), "growth": list(GROWTH)}
AXES: Final[dict[str, Axis]] = FAN_OUT | GROWTH | {"programs": PROGRAMS, "idle": IDLE}

console: Final = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass
class Runner:
    """Runs points by turns, each as often as it takes until a run counts."""

    daemon: Path
    tries: int
    #: share of a processor that others may have
    foreign: float
    most: int
    programs: Path
    refused: dict[Point, str] = field(default_factory=dict)

    def run(self, points: Sequence[Point], rounds: int) -> dict[Point, list[Figures]]:
        """Return the figures of each point that was not refused, one for each round."""
        runs: dict[Point, list[Figures]] = {point: [] for point in points}
        for number in range(1, rounds + 1):
            for done, point in enumerate(points, 1):
                found = None if point in self.refused else self._settle(point)
                shown = {name: round(value) for name, value in (found or {}).items()}
                where = f"{number}/{rounds} {done}/{len(points)} {point.axis}: {point.line}, {point.x:,}"
                console.print(where, self.refused.get(point) or f"{shown}")
                if found:
                    runs[point].append(found)
        return {point: found for point, found in runs.items() if found and point not in self.refused}

    def _settle(self, point: Point) -> Figures | None:
        """Run a point until a run counts; None if it is given up."""
        failures = 0
        for _ in range(self.tries):
            wait_until_quiet(self.foreign)
            with leave_alone(), tempfile.TemporaryDirectory(prefix="bccnd-bench-", ignore_cleanup_errors=True) as name:
                ports = (free_port(), free_port(), free_port())
                busy, own, start = machine_busy(), own_busy(), time.monotonic()
                try:
                    found = point.measure(Place(Path(name), self.programs, self.daemon, *ports, self.most))
                except (Failed, OSError) as error:
                    why = f"failed: {error}"
                    failures += 1
                else:
                    why = ""
                    foreign = ((machine_busy() - busy) - (own_busy() - own)) / (time.monotonic() - start)
                    if found.get("lost") or found.get("bad"):
                        why = f"{found['lost']:.0f} deliveries lost, {found['bad']:.0f} out of place"
                    elif foreign > self.foreign:
                        why = f"disturbed: others had {foreign:.2f} of a processor"
            if not why:
                return found
            if failures >= FAILURES:
                break
        self.refused[point] = why
        return None


def numbers(_context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    try:
        return [int(word) for word in value.split(",") if word]
    except ValueError:
        raise click.BadParameter("numbers with commas between them", param=parameter) from None


def axis_names(_context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    names = [name for word in value.split(",") for name in SETS.get(word, [word])]
    if unknown := [name for name in names if name not in AXES]:
        raise click.BadParameter(f"no such axis: {', '.join(unknown)}; there are {', '.join(AXES)}", param=parameter)
    return names


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--axes", "wanted", default="relays", callback=axis_names, help=f"Which of {', '.join((*SETS, *AXES))}.")
@click.option("--only", default="", metavar="WORDS", help="Only these relays, lines or libraries, with commas between.")
@click.option("--x", "xs", default="", callback=numbers, help="Only with so many clients, or whatever the axis counts.")
@click.option("--rounds", default=5, type=click.IntRange(1), help="Runs of each that must count.")
@click.option("--tries", default=6, type=click.IntRange(1), help="Runs for each before it is refused.")
@click.option("--foreign", default=0.05, type=click.FloatRange(0), help="Share of a processor that others may have.")
@click.option(
    "--daemon",
    default=Path(sys.executable).parent / "bccnd",
    show_default="the one beside this Python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The bccnd that is measured.",
)
@click.option("--quick", is_flag=True, help="A small run to see whether all works.")
@click.option(
    "--figures",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of figures that documents quote: write what was measured into it.",
)
def main(
    wanted: list[str],
    only: str,
    xs: list[int],
    rounds: int,
    tries: int,
    foreign: float,
    daemon: Path,
    quick: bool,
    file: Path | None,
) -> None:
    """Measure bccnd, the least that a relay can cost, and other brokers; or what a message costs as things grow."""
    try:
        programs = build(ROOT / "build/bench")
    except CannotBuild as error:
        raise click.ClickException(str(error)) from error
    words = [word for word in only.split(",") if word]
    axes = [AXES[name] for name in wanted]
    points = [point for axis in axes for point in select(axis, words, xs, quick=quick)]
    runner = Runner(daemon.absolute(), tries, foreign, FEW if quick else MOST, programs)
    runs = runner.run(points, 1 if quick else rounds)
    about = figures.about_run(daemon.absolute(), 1 if quick else rounds)
    sections = {}
    for axis in axes:
        if of_axis := {point: found for point, found in runs.items() if point.axis == axis.name}:
            sections[axis.name] = figures.section_of(axis, of_axis, about)
            print(*figures.tables(axis, sections[axis.name]), sep="\n")
    print("", figures.described(["python", "-m", "tools.bench", *sys.argv[1:]], about), sep="\n")
    for point, why in runner.refused.items():
        print(f"- refused: {point.axis}, {point.line} to {point.x}: {why}")
    if file is not None:
        for missing in figures.store(file, sections):
            console.print(f"not a section that this run has not measured as a whole: {missing}")
        console.print(f"written into {file}; python -m docs --write takes it into the documents")
    sys.exit(1 if runner.refused or not sections else 0)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench")
