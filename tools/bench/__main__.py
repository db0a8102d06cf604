"""What a message costs, held against the least that it can cost and against other brokers: `python -m tools.bench`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from tools.bench import clients, document, figures, report
from tools.bench.cases import CASES
from tools.bench.findings import as_json
from tools.bench.points import PACE, Axis, Line, Point, Stream
from tools.bench.runner import DOCS, Options, Runner, ends, names, options

#: seconds of a run with paced messages, and of a quick one
SECONDS, QUICK_SECONDS = 2.0, 0.5
LINES: Final = tuple(Line(case.name, case.title, case.floor) for case in CASES.values())

#: the libraries of Python programs
KNOWN: Final = [library.name for library in clients.LIBRARIES]


def points(mode: str, cases: list[str], fan_outs: list[int], quick: bool) -> list[Point]:
    """Return the runs of some cases."""
    made = []
    for fan_out in fan_outs:
        for case in (CASES[name] for name in cases):
            messages = int(PACE * (QUICK_SECONDS if quick else SECONDS)) if mode == "paced" else case.messages(fan_out)
            stream = Stream(messages - messages % fan_out, paced=mode == "paced")
            made.append(Point(mode, case.name, fan_out, case, fan_out, stream))
    return made


def numbers(_context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    try:
        found = [int(word) for word in value.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > 256:
        raise click.BadParameter("numbers from 1 to 256, with commas between them", param=parameter)
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--cases", default="all", callback=names(list(CASES)), help=f"Which of {', '.join(CASES)}.")
@click.option("--fan-out", "fan_outs", default="1,8,64", callback=numbers, help="Clients that get each message.")
@click.option(
    *("--modes", "modes"),
    default="all",
    callback=names(list(report.MODES)),
    help="saturated: as fast as it goes; paced: 2,000 a second.",
)
@click.option("--clients", "of_clients", is_flag=True, help="Instead, measure Python programs with several libraries.")
@click.option("--libraries", default="all", callback=names(KNOWN), help=f"Which of {', '.join(KNOWN)}, for --clients.")
@DOCS
@options("bench", rounds=5)
def main(
    cases: list[str],
    fan_outs: list[int],
    modes: list[str],
    of_clients: bool,
    libraries: list[str],
    docs: Path | None,
    **given: Any,
) -> None:
    """Measure bccnd, the least that a relay can cost, and other brokers."""
    asked = Options(**given)
    if of_clients:
        sys.exit(clients.main(asked, libraries, docs))
    missing = {one.name: one.peer.package for one in map(CASES.get, cases) if one and one.peer and not one.peer.program}
    there = [name for name in cases if name not in missing]
    axes = [Axis(mode, report.MODES[mode], "fan-out", LINES, partial(points, mode, there, fan_outs)) for mode in modes]
    found = Runner(asked).run("tools.bench", axes, [one for axis in axes for one in axis.points(asked.quick)], missing)
    document.write("bench", asked.out, as_json(found), report.markdown(found))
    if asked.figures_file is not None:
        figures.write(asked.figures_file, figures.of_bench(found))
    sys.exit(ends(found))


if __name__ == "__main__":
    main(prog_name="python -m tools.bench")
