"""The table of `python -m tools.bench`: for each axis a row for each place, a column for each line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tools.bench import document
from tools.bench.findings import Findings, Key, Value, held, p50, resident, sender, together
from tools.bench.points import Axis

#: for a peer that is missing
REMEDY: Final = "packaging/unpack-peers.sh .cache/peers, or apt-get install"
#: what is shown beside the cost of a message, by axis; resident memory where nothing stands here
FURTHER: Final[dict[str, tuple[tuple[str, Value], ...]]] = {
    "paced": (("median latency, us", p50),),
    "direct": (("ns of daemon and all programs", together), ("ns of the sender", sender)),
    "burst": (("datagrams held", held),),
}
MEMORY: Final[tuple[tuple[str, Value], ...]] = (("resident memory, MB", resident),)


def table(found: Findings, axis: Axis, title: str, cell: Callable[[Key], str]) -> list[str]:
    """The lines that have figures."""
    lines = [line for line in axis.lines if found.xs(axis.name, line.name)]
    rows = [[f"{x:,}", *(cell(Key(axis.name, line.name, x)) for line in lines)] for x in found.xs(axis.name)]
    if not any(any(row[1:]) for row in rows):
        return []
    return ["", f"**{axis.title}: {title}**", "", *document.table([axis.x, *(line.title for line in lines)], rows)]


def markdown(found: Findings) -> str:
    def cost(key: Key) -> str:
        figure, beside = found.figure(key), found.beside(key)
        if figure is None:
            return "refused" if key in found.refused else ""
        return f"{figure:,.0f}" + (f" x{beside.median:.2f}" if beside else "")

    def plain(value: Value) -> Callable[[Key], str]:
        return lambda key: "" if (figure := found.median(key, value)) is None else f"{figure:,.0f}"

    about = document.about(found.command, found.date, found.machine, found.daemon)
    lines = [f"{about}; medians of {found.rounds}, x is the multiple of what the line is held against."]
    for axis in found.axes:
        lines += table(found, axis, "ns of the relay for a message", cost)
        for title, value in FURTHER.get(axis.name, MEMORY):
            lines += table(found, axis, title, plain(value))
    lines += [""] if found.left_out or found.refused else []
    lines += [f"- left out: {case} ({REMEDY} {package})" for case, package in found.left_out.items()]
    lines += [f"- refused: {one.line} to {one.x}, {one.axis}: {why}" for one, why in found.refused.items()]
    return "\n".join(lines) + "\n"
