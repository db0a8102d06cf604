"""Runs what is compared by turns, as often as it takes until each run counts, and the options of that."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import click
from rich.console import Console

from tools.bench.measure import Result
from tools.bench.programs import ROOT, CannotBuild, build

#: so often a run may fail for a reason that is no disturbance before it is believed
FAILURES: Final = 2

console: Final = Console(stderr=True, highlight=False, soft_wrap=True)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Result)


class Runner(Generic[T, K, R]):
    """All runs of some tasks. ``once`` makes a run of a task (round, attempt), which may have several results."""

    def __init__(
        self, once: Callable[[T, int, int], Sequence[R]], key_of: Callable[[R], K], line_of: Callable[[R], str]
    ) -> None:
        self.runs: list[R] = []
        #: why
        self.refused: dict[K, str] = {}
        self._once = once
        self._key_of = key_of
        self._line_of = line_of

    def run(self, tasks: Sequence[tuple[str, T]], rounds: int, tries: int) -> None:
        """Run tasks, each with its name."""
        given_up: set[str] = set()
        for number in range(1, rounds + 1):
            for done, (name, task) in enumerate(tasks, 1):
                console.print(f"{number}/{rounds} {done}/{len(tasks)} {name}")
                if name not in given_up and not self._settle(task, number, tries):
                    given_up.add(name)

    def _settle(self, task: T, number: int, tries: int) -> bool:
        """Run a task until a run counts; False if it is given up."""
        failures = 0
        found: Sequence[R] = ()
        for attempt in range(1, tries + 1):
            found = self._once(task, number, attempt)
            self.runs += found
            for one in found:
                console.print(self._line_of(one), style="yellow" if one.refused else None)
            if not found[0].refused:
                return True
            failures += found[0].refused.startswith("failed")
            if failures >= FAILURES:
                break
        self.refused |= {self._key_of(one): one.refused for one in found}
        return False


def out(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", default=ROOT / "build" / name, type=kind, show_default=f"build/{name}")


def options(name: str, rounds: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options that every interleaved bench has."""
    share = "Share of a processor that others may have."
    every = (
        click.option("--rounds", default=rounds, type=click.IntRange(1), help="Runs of each that must count."),
        click.option("--tries", default=6, type=click.IntRange(1), help="Runs for each of them before it is refused."),
        click.option("--foreign", default=0.05, type=click.FloatRange(0), help=share),
        click.option(
            "--daemon",
            default=Path(sys.executable).parent / "bccnd",
            show_default="the one beside this Python",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The bccnd that is measured.",
        ),
        out(name),
        click.option("--quick", is_flag=True, help="A small run to see whether all works; its figures mean little."),
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(every):
            command = option(command)
        return command

    return decorate


#: a page that quotes tables
DOCS: Final = click.option(
    "--docs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A page whose tables are replaced; charts are written beside it as well.",
)


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


def programs() -> Path:
    """The load programs."""
    try:
        return build(ROOT / "build/bench")
    except CannotBuild as error:
        raise click.ClickException(str(error)) from error


def command_line(module: str) -> list[str]:
    return [*shlex.split(f"python -m {module}"), *sys.argv[1:]]


def ends(refused: Any, found: Any) -> int:
    """The exit status."""
    if not found:
        console.print("nothing was measured")
    return 1 if refused or not found else 0
