"""What a bench leaves: bench.json with everything, and bench.md with the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tools.bench import document
from tools.bench.cases import CASES
from tools.bench.measure import Rules, Run
from tools.bench.summary import FIGURES, FLOOR, Key, Spread, Summary, cpu, p50, p99, rate, rss
from tools.bench.summary import as_json as spread

#: of bench.json; raised when what is there already changes its meaning
SCHEMA: Final = 1
#: for a peer that is missing
REMEDY: Final = "packaging/unpack-peers.sh .cache/peers, or apt-get install"


@dataclass
class Findings:
    """All that a bench has found out."""

    command: list[str]
    daemon: dict[str, Any]
    rules: Rules
    rounds: int
    modes: list[str]
    fan_outs: list[int]
    runs: list[Run]
    refused: dict[Key, str]
    #: case: the package that is missing
    left_out: dict[str, str]
    summary: Summary
    machine: dict[str, Any] = field(default_factory=document.about_machine)
    date: str = field(default_factory=document.now)


def line(run: Run) -> str:
    """One run in one line."""
    who = f"round {run.round}  {run.case:<15}{run.fan_out:>4}  {run.mode:<9}"
    if run.refused.startswith("failed"):
        return f"{who} {run.refused}"
    figures = f"{run.cpu_ns:>9,.0f} ns  {run.messages_per_second:>9,.0f}/s"
    if run.p50_us is not None and run.p99_us is not None:
        figures += f"  p50 {run.p50_us:,.1f} us  p99 {run.p99_us:,.1f} us"
    return f"{who}{figures}" + (f"  does not count: {run.refused}" if run.refused else "")


def as_json(found: Findings) -> dict[str, Any]:
    summary = found.summary
    return {
        **document.header(SCHEMA, found),
        "floor": FLOOR,
        "summary": [
            {
                **key._asdict(),
                "rounds": summary.rounds_of(key),
                **{name: spread(summary.figure(key, value)) for name, value in FIGURES.items()},
                "cpu_to_floor": spread(summary.to_floor(key)),
                "p50_to_floor": spread(summary.to_floor(key, p50)),
            }
            for key in summary.keys
        ],
        "refused": [{**key._asdict(), "reason": reason} for key, reason in found.refused.items()],
        "left_out": [{"case": case, "package": package} for case, package in found.left_out.items()],
        "runs": [asdict(run) for run in found.runs],
    }


def table(found: Findings, mode: str, title: str, cell: Callable[[Key], str]) -> list[str]:
    """A row for each case that has figures, a column for each fan-out."""
    cells = {case.title: [cell(Key(name, fan_out, mode)) for fan_out in found.fan_outs] for name, case in CASES.items()}
    rows = [[title, *row] for title, row in cells.items() if any(row)]
    head = ["fan-out", *map(str, found.fan_outs)]
    return ["", f"**{title}**", "", *document.table(head, rows, words=1)] if rows else []


def count(found: Spread | None, unit: float = 1.0) -> str:
    return f"{found.median / unit:,.0f}" if found else ""


def of_floor(found: Spread | None) -> str:
    return f" x{found.median:.2f}" if found else ""


def markdown(found: Findings) -> str:
    summary = found.summary

    def cost(key: Key) -> str:
        figure = summary.figure(key, cpu)
        if figure is None:
            return "refused" if key in found.refused else ""
        return f"{figure.median:,.0f} ({figure.least:,.0f} to {figure.most:,.0f}){of_floor(summary.to_floor(key))}"

    def latency(key: Key) -> str:
        half, most = summary.figure(key, p50), summary.figure(key, p99)
        return f"{half.median:,.1f} / {most.median:,.1f}{of_floor(summary.to_floor(key, p50))}" if half and most else ""

    about = (
        f"{document.about(found.command, found.date, found.machine, found.daemon)}; medians of {found.rounds} "
        "(least to most), x is the multiple of the floor with HMAC in the same run."
    )
    lines = [about]
    for mode in found.modes:
        what = "as fast as it goes" if mode == "saturated" else "2,000 messages a second"
        lines += table(found, mode, f"CPU of the relay for a message, user and system, ns; {what}", cost)
    title = "Messages a second, relay, publisher and clients on one processor"
    lines += table(found, "saturated", title, lambda key: count(summary.figure(key, rate)))
    lines += table(found, "paced", "Latency at 2,000 messages a second, us: p50 / p99, x for the p50", latency)
    lines += table(
        found, found.modes[0], "Resident memory of the relay, MiB", lambda key: count(summary.figure(key, rss), 1024)
    )
    lines += [""] if found.left_out or found.refused else []
    lines += [f"- left out: {case} ({REMEDY} {package})" for case, package in found.left_out.items()]
    lines += [f"- refused: {one.case} to {one.fan_out}, {one.mode}: {why}" for one, why in found.refused.items()]
    return "\n".join(lines) + "\n"
