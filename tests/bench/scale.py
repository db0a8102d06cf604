"""What a message costs as things grow: `python -m tests.bench.scale`.

All points of all axes are interleaved: one run of each, then the next round, so that what changes on a machine
meanwhile changes it for all of them. A point whose runs stay disturbed, or lose something, is refused, and the exit
status is 1.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.bench import scale_charts, scale_report
from tests.bench.measure import Rules
from tests.bench.programs import ROOT, CannotBuild, build
from tests.bench.report import about_daemon
from tests.bench.scale_axes import AXES, Axis, Point
from tests.bench.scale_measure import Sample, run_once
from tests.bench.scale_report import Findings, Key

#: so often a run may fail for a reason that is no disturbance before it is believed
FAILURES = 2
#: messages of a quick run
FEW = 4096

console = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass
class Scale:
    """All runs that were asked for, and what came of them."""

    points: list[Point]
    rounds: int
    rules: Rules
    programs: Path
    daemon: Path
    samples: list[Sample] = field(default_factory=list)
    #: why
    refused: dict[Key, str] = field(default_factory=dict)

    def run(self, progress: Progress) -> None:
        bar = progress.add_task("", total=self.rounds * len(self.points))
        for number in range(1, self.rounds + 1):
            for point in self.points:
                progress.update(bar, description=f"{point.axis}: {point.line}, {point.x:,}", refresh=True)
                if Key(point.axis, point.line, point.x) not in self.refused:
                    self.settle(point, number, progress.console)
                progress.update(bar, advance=1, refresh=True)

    def settle(self, point: Point, number: int, out: Console) -> None:
        """Run a point until a run counts, or it is given up."""
        failures = 0
        for attempt in range(1, self.rules.tries + 1):
            found = run_once(point, number, attempt, self.programs, self.daemon, self.rules)
            self.samples += found
            for sample in found:
                out.print(scale_report.line_of(sample), style="yellow" if sample.refused else None)
            if not found[0].refused:
                return
            failures += found[0].refused.startswith("failed")
            if failures >= FAILURES:
                break
        for sample in found:
            self.refused[Key(sample.axis, sample.line, sample.x)] = sample.refused


def chosen(_context: click.Context, parameter: click.Parameter, value: str) -> list[Axis]:
    names = list(AXES) if value == "all" else value.split(",")
    unknown = [name for name in names if name not in AXES]
    if unknown:
        text = f"no such thing: {', '.join(unknown)}; there are {', '.join(AXES)}"
        raise click.BadParameter(text, param=parameter)
    return [AXES[name] for name in names]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--axes", default="all", callback=chosen, help=f"Which of {', '.join(AXES)}.")
@click.option("--rounds", default=3, type=click.IntRange(1), help="Runs of each point that must count.")
@click.option("--tries", default=6, type=click.IntRange(1), help="Runs for each of them before the point is refused.")
@click.option("--foreign", default=0.05, type=click.FloatRange(0), help="Share of a processor that others may have.")
@click.option("--patience", default=20.0, type=click.FloatRange(0), help="Seconds to wait for them before each run.")
@click.option(
    "--daemon",
    default=Path(sys.executable).parent / "bccnd",
    show_default="the one beside this Python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The bccnd that is measured.",
)
@click.option(
    "--out", default=ROOT / "build/scale", type=click.Path(file_okay=False, path_type=Path), show_default="build/scale"
)
@click.option(
    "--docs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page whose tables are replaced; the charts are written beside it as well.",
)
@click.option("--check", is_flag=True, help="Say what is flat and what is not; status 1 if something is not.")
@click.option("--quick", is_flag=True, help="A small run that shows whether everything works; its figures mean little.")
def main(
    axes: list[Axis],
    rounds: int,
    tries: int,
    foreign: float,
    patience: float,
    daemon: Path,
    out: Path,
    docs: Path | None,
    check: bool,
    quick: bool,
) -> None:
    """Measure what a message costs as clients, patterns, sources, channels and payloads grow.

    Writes scale.json, scale.md and charts to --out.
    """
    rules = Rules(foreign, tries, messages=FEW if quick else None, patience=patience)
    try:
        programs = build(ROOT / "build/bench")
    except CannotBuild as error:
        raise click.ClickException(str(error)) from error
    points = [point for axis in axes for point in axis.points(quick)]
    scale = Scale(points, 1 if quick else rounds, rules, programs, daemon.absolute())
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # It draws between two runs only: nothing of ours is to move during one.
    with Progress(TextColumn("{task.description}"), *columns, console=console, auto_refresh=False) as progress:
        scale.run(progress)
    command = shlex.split("python -m tests.bench.scale") + sys.argv[1:]
    about = about_daemon(scale.daemon)
    found = Findings(command, about, rules, scale.rounds, axes, scale.samples, scale.refused)
    scale_report.write(found, out, check)
    click.echo(scale_report.markdown(found, check))
    folders = [out] if docs is None else [out, docs.parent]
    if not all(scale_charts.write(found, folder) for folder in folders):
        console.print("no charts: matplotlib is missing (pip install -e '.[bench]')")
    console.print(f"written to {out}")
    if docs is not None:
        page, missing = scale_report.put_into(docs.read_text(), found)
        docs.write_text(page)
        console.print(f"and into {docs}" + (f", which has no place for {', '.join(missing)}" if missing else ""))
    verdicts = scale_report.verdicts(found)
    if check and not verdicts:
        console.print("nothing of what was asked for has to be flat")
    failed = scale.refused or not found.keys or (check and not (verdicts and all(one.holds for one in verdicts)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.scale")
