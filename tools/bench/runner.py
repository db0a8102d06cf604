"""Runs points by turns, as often as it takes until each run counts, and the options of that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from tools.bench import document
from tools.bench.document import console
from tools.bench.findings import Findings, Key, key_of, line_of
from tools.bench.measure import Rules, Sample, run_once
from tools.bench.points import Axis, Point
from tools.bench.programs import ROOT, CannotBuild, build

#: so often a run may fail for a reason that is no disturbance before it is believed
FAILURES: Final = 2
#: messages of a quick run
FEW: Final = 4096


@dataclass(frozen=True)
class Options:
    """What `options` reads."""

    rounds: int
    tries: int
    foreign: float
    daemon: Path
    out: Path
    quick: bool
    figures_file: Path | None


class Runner:
    """All runs of some points."""

    def __init__(self, options: Options) -> None:
        self.samples: list[Sample] = []
        #: why
        self.refused: dict[Key, str] = {}
        self.rounds = 1 if options.quick else options.rounds
        self.rules = Rules(options.foreign, options.tries, FEW if options.quick else None)
        self._daemon = options.daemon.absolute()
        try:
            self.programs = build(ROOT / "build/bench")
        except CannotBuild as error:
            raise click.ClickException(str(error)) from error

    def run(self, axes: Sequence[Axis], points: Sequence[Point], left_out: Mapping[str, str]) -> Findings:
        """Run points by turns; return what was found out."""
        given_up: set[Point] = set()
        for number in range(1, self.rounds + 1):
            for done, point in enumerate(points, 1):
                name = f"{point.axis}: {point.line}, {point.x:,}"
                console.print(f"{number}/{self.rounds} {done}/{len(points)} {name}")
                if point not in given_up and not self._settle(point, number):
                    given_up.add(point)
        command = ["python", "-m", "tools.bench", *sys.argv[1:]]
        about = document.about_daemon(self._daemon)
        return Findings(command, about, self.rules, self.rounds, axes, self.samples, self.refused, left_out)

    def _settle(self, point: Point, number: int) -> bool:
        """Run a point until a run counts; False if it is given up."""
        failures = 0
        found: Sequence[Sample] = ()
        for attempt in range(1, self.rules.tries + 1):
            found = run_once(point, number, attempt, self.programs, self._daemon, self.rules)
            self.samples += found
            for one in found:
                console.print(line_of(one), style="yellow" if one.refused else None)
            if not found[0].refused:
                return True
            failures += found[0].refused.startswith("failed")
            if failures >= FAILURES:
                break
        self.refused |= {key_of(one): one.refused for one in found}
        return False


#: for what docs/quotes.py takes into documents
FIGURES: Final = click.option(
    "--figures",
    "figures_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of figures that documents quote: write what was measured into it.",
)


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every interleaved bench has."""
    share = "Share of a processor that others may have."
    for option in reversed(
        (
            click.option("--rounds", default=5, type=click.IntRange(1), help="Runs of each that must count."),
            click.option("--tries", default=6, type=click.IntRange(1), help="Runs for each before it is refused."),
            click.option("--foreign", default=0.05, type=click.FloatRange(0), help=share),
            click.option(
                "--daemon",
                default=Path(sys.executable).parent / "bccnd",
                show_default="the one beside this Python",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="The bccnd that is measured.",
            ),
            click.option(
                "--out",
                default=ROOT / "build/bench",
                type=click.Path(file_okay=False, path_type=Path),
                show_default="build/bench",
            ),
            click.option("--quick", is_flag=True, help="A small run to see whether all works."),
            FIGURES,
        )
    ):
        command = option(command)
    return command


def names(known: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Reads names with commas between them, or ``all``."""

    def read(_context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
        found = list(known) if value == "all" else [name for name in value.split(",") if name]
        unknown = [name for name in found if name not in known]
        if unknown:
            text = f"no such thing: {', '.join(unknown)}; there are {', '.join(known)}"
            raise click.BadParameter(text, param=parameter)
        return found

    return read
