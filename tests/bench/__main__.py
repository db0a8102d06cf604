"""What a message costs, held against the least that it can cost and against other brokers: `python -m tests.bench`.

All cases are interleaved: one run of each, then the next round, so that what changes on a machine meanwhile changes it
for all of them. A case whose runs stay disturbed, or lose something, is refused, and the exit status is 1.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.bench import bounds, report
from tests.bench.cases import CASES, Case
from tests.bench.measure import Rules, Run, run_once
from tests.bench.programs import ROOT, CannotBuild, build
from tests.bench.summary import Key, Summary

MODES = ("saturated", "paced")
#: so often a run may fail for a reason that is no disturbance before it is believed
FAILURES = 2

console = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass
class Bench:
    """All runs that were asked for, and what came of them."""

    cases: list[Case]
    fan_outs: list[int]
    modes: list[str]
    rounds: int
    rules: Rules
    programs: Path
    daemon: Path
    runs: list[Run] = field(default_factory=list)
    #: why
    refused: dict[Key, str] = field(default_factory=dict)

    def combinations(self) -> Iterator[tuple[str, int, Case]]:
        for mode in self.modes:
            for fan_out in self.fan_outs:
                for case in self.cases:
                    if case.fits(fan_out, mode):
                        yield mode, fan_out, case

    def run(self, progress: Progress) -> None:
        todo = list(self.combinations())
        bar = progress.add_task("", total=self.rounds * len(todo))
        for number in range(1, self.rounds + 1):
            for mode, fan_out, case in todo:
                progress.update(bar, description=f"{case.name} to {fan_out}, {mode}", refresh=True)
                if Key(case.name, fan_out, mode) not in self.refused:
                    self.settle(case, fan_out, mode, number, progress.console)
                progress.update(bar, advance=1, refresh=True)

    def settle(self, case: Case, fan_out: int, mode: str, number: int, out: Console) -> None:
        """Run a case until a run counts, or it is given up."""
        failures = 0
        for attempt in range(1, self.rules.tries + 1):
            run = run_once(case, fan_out, mode, number, attempt, self.programs, self.daemon, self.rules)
            self.runs.append(run)
            out.print(report.line(run), style="yellow" if run.refused else None)
            if not run.refused:
                return
            failures += run.refused.startswith("failed")
            if failures >= FAILURES:
                break
        self.refused[Key(case.name, fan_out, mode)] = run.refused


def asked(cases: list[Case], fan_outs: list[int], modes: list[str]) -> set[Key]:
    """All combinations that make sense."""
    every = ((case, fan_out, mode) for case in cases for fan_out in fan_outs for mode in modes)
    return {Key(case.name, fan_out, mode) for case, fan_out, mode in every if case.fits(fan_out, mode)}


def numbers(_context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    try:
        found = [int(word) for word in value.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > 256:
        raise click.BadParameter("numbers from 1 to 256, with commas between them", param=parameter)
    return found


def names(known: tuple[str, ...], value: str) -> list[str]:
    found = value.split(",")
    unknown = [name for name in found if name not in known]
    if unknown:
        raise click.UsageError(f"no such thing: {', '.join(unknown)}; there are {', '.join(known)}")
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--cases", default="all", help=f"Which of {', '.join(CASES)}.")
@click.option("--fan-out", "fan_outs", default="1,8,64", callback=numbers, help="Clients that get each message.")
@click.option("--modes", default=",".join(MODES), help="saturated: as fast as it goes; paced: 2,000 a second.")
@click.option("--rounds", default=5, type=click.IntRange(1), help="Runs of each case that must count.")
@click.option("--tries", default=6, type=click.IntRange(1), help="Runs for each of them before the case is refused.")
@click.option("--foreign", default=0.05, type=click.FloatRange(0), help="Share of a processor that others may have.")
@click.option(
    "--daemon",
    default=Path(sys.executable).parent / "bccnd",
    show_default="the one beside this Python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The bccnd that is measured.",
)
@click.option(
    "--out", default=ROOT / "build/bench", type=click.Path(file_okay=False, path_type=Path), show_default="build/bench"
)
@click.option("--check", is_flag=True, help="Hold the figures against the bounds; status 1 if one does not hold.")
@click.option("--quick", is_flag=True, help="A small run that shows whether everything works; its figures mean little.")
def main(
    cases: str,
    fan_outs: list[int],
    modes: str,
    rounds: int,
    tries: int,
    foreign: float,
    daemon: Path,
    out: Path,
    check: bool,
    quick: bool,
) -> None:
    """Measure bccnd, the least that a relay can cost, and other brokers.

    Writes bench.json, bench.md and a chart to --out.
    """
    chosen = [CASES[name] for name in (list(CASES) if cases == "all" else names(tuple(CASES), cases))]
    rules = Rules(foreign, tries)
    if quick:
        rounds = 1
        rules = Rules(foreign, tries, messages=4096, paced_seconds=0.5)
    missing = {case.name: case.peer.package for case in chosen if case.peer and case.peer.program is None}
    try:
        programs = build(ROOT / "build/bench")
    except CannotBuild as error:
        raise click.ClickException(str(error)) from error
    present = [case for case in chosen if case.name not in missing]
    bench = Bench(present, fan_outs, names(MODES, modes), rounds, rules, programs, daemon.absolute())
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    # It draws between two runs only: nothing of ours is to move during one.
    with Progress(TextColumn("{task.description}"), *columns, console=console, auto_refresh=False) as progress:
        bench.run(progress)
    summary = Summary(bench.runs, bench.refused)
    found = report.Findings(
        command=shlex.split("python -m tests.bench") + sys.argv[1:],
        daemon=report.about_daemon(bench.daemon),
        rules=rules,
        rounds=rounds,
        modes=bench.modes,
        fan_outs=fan_outs,
        runs=bench.runs,
        refused=bench.refused,
        left_out=missing,
        summary=summary,
        verdicts=bounds.judge(summary, asked(chosen, fan_outs, bench.modes)) if check else [],
    )
    drawn = report.write(found, out)
    click.echo(report.markdown(found))
    if not drawn:
        console.print("no chart: matplotlib is missing (pip install -e '.[bench]')")
    console.print(f"written to {out}")
    if check and not found.verdicts:
        console.print("none of the bounds is between cases that were asked for")
    if not summary.keys:
        console.print("nothing was measured")
    failed = (
        bench.refused
        or not summary.keys
        or (check and not (found.verdicts and all(one.holds for one in found.verdicts)))
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(prog_name="python -m tests.bench")
