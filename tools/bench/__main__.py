"""What a message costs, held against the least that it can cost and against other brokers: `python -m tools.bench`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tools.bench import document, figures, report
from tools.bench.cases import CASES, Case
from tools.bench.measure import Rules, Run, run_once
from tools.bench.runner import Runner, command_line, ends, names, options, programs
from tools.bench.summary import Key, Summary

MODES = ("saturated", "paced")


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
    "--modes", default="all", callback=names(MODES), help="saturated: as fast as it goes; paced: 2,000 a second."
)
@options("bench", rounds=5)
@figures.OPTION
def main(
    cases: list[str],
    fan_outs: list[int],
    modes: list[str],
    rounds: int,
    tries: int,
    foreign: float,
    daemon: Path,
    out: Path,
    quick: bool,
    figures_file: Path | None,
) -> None:
    """Measure bccnd, the least that a relay can cost, and other brokers."""
    chosen = [CASES[name] for name in cases]
    rules = Rules(foreign, tries)
    if quick:
        rounds = 1
        rules = Rules(foreign, tries, messages=4096, paced_seconds=0.5)
    missing = {case.name: case.peer.package for case in chosen if case.peer and case.peer.program is None}
    loads, daemon = programs(), daemon.absolute()
    every = [(mode, fan_out, case) for mode in modes for fan_out in fan_outs for case in chosen]

    def once(task: tuple[str, int, Case], number: int, attempt: int) -> list[Run]:
        mode, fan_out, case = task
        return run_once(case, fan_out, mode, number, attempt, loads, daemon, rules)

    runner = Runner(once, lambda run: Key(run.case, run.fan_out, run.mode), report.line)
    tasks = [(f"{one[2].name} to {one[1]}, {one[0]}", one) for one in every if one[2].name not in missing]
    runner.run(tasks, rounds, tries)
    summary = Summary(runner.runs, runner.refused)
    found = report.Findings(
        command=command_line("tools.bench"),
        daemon=document.about_daemon(daemon),
        rules=rules,
        rounds=rounds,
        modes=modes,
        fan_outs=fan_outs,
        runs=runner.runs,
        refused=runner.refused,
        left_out=missing,
        summary=summary,
    )
    document.write("bench", out, report.as_json(found), report.markdown(found))
    if figures_file is not None:
        figures.write(figures_file, figures.of_bench(found))
    sys.exit(ends(runner.refused, summary.keys))


if __name__ == "__main__":
    main(prog_name="python -m tools.bench")
