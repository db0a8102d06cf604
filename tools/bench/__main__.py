"""What a message costs, beside the least that it can cost, beside other brokers, and as things grow.

The figures go to docs/figures.json, their only home; the tables are printed.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, Final

import click

from tools.bench import clients, document, figures, report
from tools.bench.cases import CASES
from tools.bench.findings import as_json
from tools.bench.growth import GROWTH
from tools.bench.points import PACE, Axis, Line, Point, Stream
from tools.bench.runner import Options, Runner, names, options

#: seconds of a run with paced messages, and of a quick one
SECONDS, QUICK_SECONDS = 2.0, 0.5
LINES: Final = tuple(Line(case.name, case.title, case.floor) for case in CASES.values())
#: the ways to send by which relays are compared
MODES: Final = {"saturated": "as fast as it goes", "paced": "2,000 messages a second"}
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


def axis_names(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    groups = {"relays": list(MODES), "growth": list(GROWTH)}
    return groups[value] if value in groups else names([*MODES, *GROWTH])(context, parameter, value)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    *("--axes", "wanted"),
    default="relays",
    callback=axis_names,
    help=f"Which of {', '.join((*MODES, *GROWTH))}; relays: the first two, growth: the others.",
)
@click.option("--cases", default="all", callback=names(list(CASES)), help=f"Which relays of {', '.join(CASES)}.")
@click.option("--fan-out", "fan_outs", default="1,8,64", callback=numbers, help="Clients that get each message.")
@click.option("--clients", "of_clients", is_flag=True, help="Instead, measure Python programs with several libraries.")
@click.option("--libraries", default="all", callback=names(KNOWN), help=f"Which of {', '.join(KNOWN)}, for --clients.")
@options
def main(
    wanted: list[str], cases: list[str], fan_outs: list[int], of_clients: bool, libraries: list[str], **given: Any
) -> None:
    """Measure bccnd, the least that a relay can cost, and other brokers; or what a message costs as things grow."""
    asked = Options(**given)
    if of_clients:
        sys.exit(clients.main(asked, libraries))
    missing = {one.name: one.peer.package for one in map(CASES.get, cases) if one and one.peer and not one.peer.program}
    there = [name for name in cases if name not in missing]
    relays = {
        mode: Axis(mode, title, "fan-out", LINES, partial(points, mode, there, fan_outs))
        for mode, title in MODES.items()
    }
    axes = [(relays | GROWTH)[name] for name in wanted]
    left_out = missing if any(name in MODES for name in wanted) else {}
    found = Runner(asked).run(axes, [one for axis in axes for one in axis.points(asked.quick)], left_out)
    document.write("bench", asked.out, as_json(found), report.markdown(found))
    if asked.figures_file is not None:
        figures.write(asked.figures_file, figures.sections(found))
    if not found.keys:
        document.console.print("nothing was measured")
    sys.exit(1 if found.refused or not found.keys else 0)


if __name__ == "__main__":
    main(prog_name="python -m tools.bench")
