"""The tables of `python -m tools.bench.scale`, which stand in docs/scaling.md, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tools.bench import document
from tools.bench.cases import CHANNELS, SIZE
from tools.bench.document import table
from tools.bench.findings import Findings, Key, Value, cpu, held, of_source, resident, sender, together
from tools.bench.points import Axis, Line
from tools.bench.scale_axes import AXES

#: sources of a large host
MANY_SOURCES: Final = 100_000
#: channels of the ordinary load
SEVERAL: Final = CHANNELS
#: the cost of messages without a subscriber
NO_SUBSCRIBER: Final = Key("clients", "bccnd", 0)
#: segments that no test can build: hosts, and messages a second of each of the programs on each of them
SEGMENTS: Final = ((20, 50), (200, 5), (200, 50), (1000, 1), (1000, 5), (1000, 50))
PROGRAMS: Final = 10
#: bytes around a datagram: UDP, IPv4, Ethernet with its check, preamble and gap
ON_THE_WIRE: Final = 8 + 20 + 18 + 20
#: ns in which the kernel sends and receives a datagram on loopback, as measured with one listener: on a host of a fleet
#: the receiving takes no more
RECEIVING: Final = 3000
#: seconds between heartbeats
BEAT: Final = 5


class Fit(NamedTuple):
    """The cost of a message to n clients: ``base`` and ``each`` ns, and by how much the worst point is off."""

    base: float
    each: float
    off: float


def fit(points: Mapping[int, float]) -> Fit | None:
    """Least squares of the relative errors, so that a small fan-out says as much as a large one."""
    if len(points) < 2:
        return None
    # Each point divided by its own figure: 1 = base * (1 / y) + each * (n / y).
    rows = [(1 / y, n / y) for n, y in points.items()]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] for row in rows), sum(row[1] for row in rows)
    whole = aa * bb - ab * ab
    if not whole:
        return None
    base, slope = (a * bb - b * ab) / whole, (b * aa - a * ab) / whole
    return Fit(base, slope, max(abs(base * one + slope * n - 1) for one, n in rows))


def fit_of(found: Findings, line: str) -> Fit | None:
    figures = {x: found.median(Key("clients", line, x)) for x in found.xs("clients", line)}
    return fit({x: figure for x, figure in figures.items() if figure is not None and x})


def about(found: Findings) -> str:
    rounds = f"{found.rounds}{' rounds' if found.rounds > 1 else ' round'}"
    return f"{document.about(found.command, found.date, found.machine, found.daemon)}; medians of {rounds}."


def plain(figure: float | None, form: str = ",.0f") -> str:
    return "" if figure is None else format(figure, form)


def per_second(figure: float | None) -> str:
    """What a whole core comes to, with the kernel's receiving; to three digits, as more are not known."""
    return "" if figure is None else f"{float(f'{1e9 / (figure + RECEIVING):.3g}'):,.0f}"


def cost(found: Findings, key: Key, value: Value = cpu) -> str:
    """Median, range and ratio."""
    if key in found.refused:
        return "refused"
    figure = found.figure(key, value)
    if figure is None:
        return ""
    # What a floor does by itself along an axis where it must grow says nothing.
    grows = key.axis == "clients" and not AXES[key.axis].line(key.line).floor
    beside = None if grows else found.beside(key, value)
    return f"{figure:,.0f}" + (f" x{beside.median:.2f}" if beside else "")


def grid(axis: Axis, lines: Sequence[Line], xs: Iterable[int], cell: Callable[[Key], str]) -> list[str]:
    """A row for each x, a column for each line."""
    rows = [[f"{x:,}", *(cell(Key(axis.name, line.name, x)) for line in lines)] for x in xs]
    return table([axis.x, *(line.title for line in lines)], rows)


def by_line(found: Findings, axis: Axis) -> list[str]:
    lines = [line for line in axis.lines if found.xs(axis.name, line.name)]
    return grid(axis, lines, found.xs(axis.name), lambda key: cost(found, key))


def of_capacity(found: Findings) -> list[str]:
    rows = []
    for x in found.xs("clients"):
        packet, batch = (found.median(Key("clients", line, x)) for line in ("bccnd", "bccnd_batch"))
        rows.append([f"{x:,}", plain(packet), per_second(packet), plain(batch), per_second(batch)])
    head = ["receiving clients", "ns, packet mode", "messages/s", "ns, batch mode", "messages/s"]
    return table(head, rows)


def of_constants(found: Findings) -> list[str]:
    """What a message costs as ``a + b * clients``, and what else does not depend on how much there is already."""
    rows = []
    for name in ("bccnd", "bccnd_batch", "floor", "floor_batch"):
        one = fit_of(found, name)
        if one:
            title = AXES["clients"].line(name).title
            rows.append([title, f"{one.base:,.0f}", f"{one.each:,.0f}", f"{one.off * 100:.0f} %"])
    lines = table(["", "a, ns for a message", "b, ns for each client", "worst point is off by"], rows)
    again, first = (Key("sources", line, MANY_SOURCES) for line in ("bccnd", "first"))
    unknown = difference(found, Key("channels", "one_unique", 1_000_000), Key("channels", "one_alternating", SEVERAL))
    more: list[tuple[str, float | None, str]] = [
        ("a message without a subscriber here", found.median(NO_SUBSCRIBER), "ns"),
        ("more for a channel that is not remembered, with 1 client", unknown, "ns"),
        ("more for a source heard for the first time", difference(found, first, again), "ns"),
        ("memory for each source", found.median(again, of_source), "bytes"),
        ("memory for each client that reads what it gets", of_client(found), "KiB"),
    ]
    return [*lines, "", *(f"- {what}: {value:,.0f} {unit}" for what, value, unit in more if value is not None)]


def difference(found: Findings, above: Key, below: Key, value: Value = cpu) -> float | None:
    one, other = found.median(above, value), found.median(below, value)
    return None if one is None or other is None else one - other


def of_client(found: Findings) -> float | None:
    """KiB that the daemon takes for one more client that reads what it gets."""
    known = [x for x in found.xs("clients", "bccnd") if x]
    few, many = min(known, default=0), max(known, default=0)
    more = difference(found, Key("clients", "bccnd", many), Key("clients", "bccnd", few), resident)
    return None if more is None or few == many else more * 1e6 / 1024 / (many - few)


def of_segments(found: Findings) -> list[str]:
    """What the constants come to on segments that are not here."""
    unwanted, packet, batch = found.median(NO_SUBSCRIBER), fit_of(found, "bccnd"), fit_of(found, "bccnd_batch")
    if not (unwanted and packet and batch):
        return []
    memory = found.median(Key("sources", "bccnd", MANY_SOURCES), of_source)
    rows = []
    for hosts, rate in SEGMENTS:
        programs = hosts * PROGRAMS
        messages, beats = programs * rate, (programs + hosts) / BEAT
        some = unwanted + packet.each * PROGRAMS * 0.01
        costs = [unwanted, some, packet.base + packet.each * PROGRAMS, batch.base + batch.each * PROGRAMS]
        rows.append(
            [
                f"{hosts:,} x {PROGRAMS} x {rate}",
                f"{messages:,}",
                f"{messages * (SIZE + ON_THE_WIRE) * 8 / 1e6:,.0f}",
                *(of_core(messages * cost / 1e7) for cost in costs),
                f"{100 * beats / (messages + beats):.1f} %",
                f"{(programs + hosts) * memory / 1e6:.1f}" if memory else "",
            ]
        )
    head = [
        *("hosts x programs x messages/s", "messages/s", "Mbit/s on every link"),
        *("CPU: no subscriber", "each wants 1 %", "each wants all", "all, batch mode"),
        *("heartbeats", "MB for sources"),
    ]
    return table(head, rows)


def of_core(percent: float) -> str:
    return f"{percent:,.0f} %" if percent <= 100 else f"**{percent:,.0f} %**"


def of_clients(found: Findings, axis: Axis) -> list[str]:
    parts = {
        "ns for a message, and the multiple of the floor beside it": by_line(found, axis),
        "What one core carries": of_capacity(found),
        "a + b * clients": of_constants(found),
        "Large segments, calculated": of_segments(found),
    }
    return [line for title, lines in parts.items() if lines for line in ("", f"{title}:", "", *lines)][1:]


def of_sources(found: Findings, _axis: Axis) -> list[str]:
    rows = []
    for x in found.xs("sources"):
        again, first = Key("sources", "bccnd", x), Key("sources", "first", x)
        bytes_each = plain(found.median(again, of_source)) if x >= 10_000 else ""
        size = plain(found.median(again, resident), ",.1f")
        rows.append([f"{x:,}", cost(found, again), plain(found.median(first)), size, bytes_each])
    head = ["sources", "ns, heard again", "ns, heard for the first time", "resident, MB", "bytes for each"]
    return table(head, rows)


def of_channels(found: Findings, axis: Axis) -> list[str]:
    out: list[str] = []
    for kind in ("one", "patterns", "all"):
        known = [line for line in axis.lines if line.name.startswith(f"{kind}_") and found.xs(axis.name, line.name)]
        if known:
            who = known[0].title.partition(";")[0]
            lines = [line._replace(title=line.title.partition("; ")[2]) for line in known]
            xs = sorted({x for line in lines for x in found.xs(axis.name, line.name)})
            out += [f"{who}: ns for a message, and the multiple of {SEVERAL} channels by turns:", ""]
            out += [*grid(axis, lines, xs, lambda key: cost(found, key)), ""]
    return out[:-1]


def of_direct(found: Findings, axis: Axis) -> list[str]:
    def by(value: Value) -> list[str]:
        return grid(axis, axis.lines, found.xs(axis.name), lambda key: plain(found.median(key, value)))

    what = "and for the sender, which does the kernel's part of the receiving on loopback:"
    whole = "ns for a message, daemon and all programs' receiving together:"
    return [whole, "", *by(together), "", what, "", *by(sender)]


def of_burst(found: Findings, axis: Axis) -> list[str]:
    rows = []
    for x in found.xs(axis.name):
        key = Key(axis.name, "bccnd", x)
        figure = found.figure(key, held)
        taken = f"{2 * (64 << 20) / figure.median:,.0f}" if figure else ""
        rows.append([f"{x:,}", f"{figure:,.0f}" if figure else "", taken, plain(found.median(key))])
    return table(
        ["bytes of a datagram", "datagrams held by 64 MiB", "bytes charged for each", "ns to catch up, each"], rows
    )


MAKERS: Final[dict[str, Callable[[Findings, Axis], list[str]]]] = {
    "clients": of_clients,
    "sources": of_sources,
    "channels": of_channels,
    "direct": of_direct,
    "burst": of_burst,
}


def markdown(found: Findings) -> str:
    lines = [about(found)]
    for axis in found.axes:
        if found.xs(axis.name):
            lines += ["", f"**{axis.title}**", "", *MAKERS.get(axis.name, by_line)(found, axis)]
    output = [f"- refused: {key.axis} {key.line} {key.x:,}: {why}" for key, why in found.refused.items()]
    return "\n".join([*lines, *(["", *output] if output else [])]) + "\n"
