"""What a message costs as things grow: `python -m tools.bench.scale`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from tools.bench import document, figures, scale_charts, scale_report
from tools.bench.measure import Rules
from tools.bench.runner import DOCS, Runner, command_line, ends, names, options, programs
from tools.bench.scale_axes import AXES, Point
from tools.bench.scale_measure import Sample, run_once
from tools.bench.scale_report import Findings, Key

#: messages of a quick run
FEW = 4096


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--axes", "wanted", default="all", callback=names(list(AXES)), help=f"Which of {', '.join(AXES)}.")
@options("scale", rounds=3)
@DOCS
@figures.OPTION
def main(
    wanted: list[str],
    rounds: int,
    tries: int,
    foreign: float,
    daemon: Path,
    out: Path,
    docs: Path | None,
    quick: bool,
    figures_file: Path | None,
) -> None:
    """Measure what a message costs as clients, patterns, sources, channels and payloads grow."""
    rules = Rules(foreign, tries, messages=FEW if quick else None)
    loads, daemon = programs(), daemon.absolute()
    rounds = 1 if quick else rounds
    axes = [AXES[name] for name in wanted]

    def once(point: Point, number: int, attempt: int) -> list[Sample]:
        return run_once(point, number, attempt, loads, daemon, rules)

    runner = Runner(once, lambda sample: Key(sample.axis, sample.line, sample.x), scale_report.line_of)
    points = [point for axis in axes for point in axis.points(quick)]
    runner.run([(f"{one.axis}: {one.line}, {one.x:,}", one) for one in points], rounds, tries)
    about = document.about_daemon(daemon)
    found = Findings(command_line("tools.bench.scale"), about, rules, rounds, axes, runner.runs, runner.refused)
    text, draw = scale_report.markdown(found), partial(scale_charts.write, found)
    document.write("scale", out, scale_report.as_json(found), text, draw, docs)
    if figures_file is not None:
        figures.write(figures_file, figures.of_scale(found))
    sys.exit(ends(runner.refused, found.keys))


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.scale")
