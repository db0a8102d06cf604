"""What a message costs as things grow: `python -m tools.bench.scale`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from tools.bench import document, figures, scale_charts, scale_report
from tools.bench.findings import as_json
from tools.bench.runner import DOCS, Options, Runner, ends, names, options
from tools.bench.scale_axes import AXES


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--axes", "wanted", default="all", callback=names(list(AXES)), help=f"Which of {', '.join(AXES)}.")
@options("scale", rounds=3)
@DOCS
def main(wanted: list[str], docs: Path | None, **given: Any) -> None:
    """Measure what a message costs as clients, patterns, sources, channels and payloads grow."""
    asked = Options(**given)
    axes = [AXES[name] for name in wanted]
    points = [point for axis in axes for point in axis.points(asked.quick)]
    found = Runner(asked).run("tools.bench.scale", axes, points, {})
    text, draw = scale_report.markdown(found), partial(scale_charts.write, found)
    document.write("scale", asked.out, as_json(found), text, draw, docs)
    if asked.figures_file is not None:
        figures.write(asked.figures_file, figures.of_scale(found))
    sys.exit(ends(found))


if __name__ == "__main__":
    main(prog_name="python -m tools.bench.scale")
