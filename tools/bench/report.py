"""The tables of `python -m tools.bench`: a row for each case, a column for each fan-out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tools.bench import document
from tools.bench.findings import Findings, Key, Spread, Value, p50, p99, rate, rss
from tools.bench.points import Axis

#: the axes
MODES: Final = {"saturated": "as fast as it goes", "paced": "2,000 messages a second"}
#: for a peer that is missing
REMEDY: Final = "packaging/unpack-peers.sh .cache/peers, or apt-get install"


def table(found: Findings, axis: Axis, title: str, cell: Callable[[Key], str]) -> list[str]:
    """The cases that have figures."""
    fan_outs = found.xs(axis.name)
    cells = {line.title: [cell(Key(axis.name, line.name, x)) for x in fan_outs] for line in axis.lines}
    rows = [[title, *row] for title, row in cells.items() if any(row)]
    head = [axis.x, *map(str, fan_outs)]
    return ["", f"**{title}**", "", *document.table(head, rows, words=1)] if rows else []


def of_floor(found: Spread | None) -> str:
    return f" x{found.median:.2f}" if found else ""


def markdown(found: Findings) -> str:
    def cost(key: Key) -> str:
        figure = found.figure(key)
        if figure is None:
            return "refused" if key in found.refused else ""
        return f"{figure.median:,.0f} ({figure.least:,.0f} to {figure.most:,.0f}){of_floor(found.beside(key))}"

    def latency(key: Key) -> str:
        half, most = found.median(key, p50), found.median(key, p99)
        return f"{half:,.1f} / {most:,.1f}{of_floor(found.beside(key, p50))}" if half and most else ""

    def plain(value: Value, unit: float = 1.0) -> Callable[[Key], str]:
        return lambda key: "" if (figure := found.median(key, value)) is None else f"{figure / unit:,.0f}"

    about = document.about(found.command, found.date, found.machine, found.daemon)
    what = f"medians of {found.rounds} (least to most), x is the multiple of the floor in the same run."
    lines = [f"{about}; {what}"]
    for axis in found.axes:
        lines += table(found, axis, f"CPU of the relay for a message, user and system, ns; {axis.title}", cost)
        if axis.name == "saturated":
            title = "Messages a second, relay, publisher and clients on one processor"
            lines += table(found, axis, title, plain(rate))
        else:
            lines += table(found, axis, "Latency at 2,000 messages a second, us: p50 / p99, x for the p50", latency)
    lines += table(found, found.axes[0], "Resident memory of the relay, MiB", plain(rss, 1024))
    lines += [""] if found.left_out or found.refused else []
    lines += [f"- left out: {case} ({REMEDY} {package})" for case, package in found.left_out.items()]
    lines += [f"- refused: {one.line} to {one.x}, {one.axis}: {why}" for one, why in found.refused.items()]
    return "\n".join(lines) + "\n"
