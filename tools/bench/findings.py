"""Figures of many runs: medians, ranges and ratios, as JSON and line by line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from statistics import median
from typing import Any, Final, NamedTuple

from tools.bench import document
from tools.bench.measure import Rules, Sample
from tools.bench.points import Axis

Value = Callable[[Sample], float | None]


class Key(NamedTuple):
    """Which figures: of which line, at which place of which axis."""

    axis: str
    line: str
    x: int


@dataclass(frozen=True)
class Spread:
    """A figure, and how far it spreads over the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))

    def __format__(self, form: str) -> str:
        """The median with its range, which is left out where it cannot be seen."""
        least, most = format(self.least, form), format(self.most, form)
        return f"{self.median:{form}} ({least} to {most})" if least != most else format(self.median, form)


def cpu(sample: Sample) -> float | None:
    return sample.cpu_ns or None


def together(sample: Sample) -> float | None:
    """Relay and clients."""
    return sample.cpu_ns + sample.clients_ns


def each(sample: Sample) -> float | None:
    """Processor time for one delivery."""
    return sample.cpu_ns / sample.fan_out if sample.fan_out >= 1 and sample.cpu_ns else None


def resident(sample: Sample) -> float | None:
    """MB."""
    return None if sample.rss_kib is None else sample.rss_kib * 1024 / 1e6


def of_source(sample: Sample) -> float | None:
    """Bytes that came with each source."""
    return None if sample.grown_kib is None else sample.grown_kib * 1024 / sample.x


clients_cpu, sender, rate, p50, p99, lost, rss, held = map(
    attrgetter,
    ("clients_ns", "sender_ns", "messages_per_second", "p50_us", "p99_us", "lost", "rss_kib", "held"),
)
#: those of the JSON file
FIGURES: Final[dict[str, Value]] = {
    "cpu_ns": cpu,
    "clients_ns": clients_cpu,
    "messages_per_second": rate,
    "p50_us": p50,
    "p99_us": p99,
    "lost": lost,
    "rss_kib": rss,
}


@dataclass
class Findings:
    """All that was found out."""

    command: list[str]
    daemon: dict[str, Any]
    rules: Rules
    rounds: int
    axes: Sequence[Axis]
    samples: list[Sample]
    refused: Mapping[Key, str]
    #: line: the package that is missing for it
    left_out: Mapping[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=document.about_machine)
    date: str = field(default_factory=document.now)

    def __post_init__(self) -> None:
        #: the runs that count, by round
        self._by_key: dict[Key, dict[int, Sample]] = {}
        for sample in self.samples:
            key = key_of(sample)
            if not sample.refused and key not in self.refused:
                self._by_key.setdefault(key, {})[sample.round] = sample

    @property
    def keys(self) -> list[Key]:
        return list(self._by_key)

    def xs(self, axis: str, line: str = "") -> list[int]:
        every = {*self._by_key, *self.refused}
        return sorted({key.x for key in every if key.axis == axis and line in ("", key.line)})

    def figure(self, key: Key, value: Value = cpu) -> Spread | None:
        found = [value(sample) for sample in self._by_key.get(key, {}).values()]
        known = [one for one in found if one is not None]
        return Spread.over(known) if known else None

    def median(self, key: Key, value: Value = cpu) -> float | None:
        figure = self.figure(key, value)
        return figure.median if figure else None

    def beside(self, key: Key, value: Value = cpu) -> Spread | None:
        """In terms of what the line is held against: its floor at the same place, or its own first point."""
        axis = next(axis for axis in self.axes if axis.name == key.axis)
        line = axis.line(key.line)
        if line.floor:
            base = key._replace(line=line.floor)
        elif axis.base is not None:
            base = Key(key.axis, *axis.base(key.line))
        else:
            base = key._replace(x=self.xs(key.axis, key.line)[0])
        one, other = self.median(key, value), self.median(base, value)
        if base == key or one is None or not other:
            return None
        samples, others = self._by_key[key], self._by_key[base]
        pairs = [(value(sample), value(others[n])) for n, sample in samples.items() if n in others]
        known = [up / down for up, down in pairs if up is not None and down]
        return Spread(one / other, min(known), max(known)) if known else None


def key_of(sample: Sample) -> Key:
    return Key(sample.axis, sample.line, sample.x)


def as_json(found: Findings) -> dict[str, Any]:
    def spread(figure: Spread | None) -> dict[str, float] | None:
        return None if figure is None else {name: round(value, 4) for name, value in asdict(figure).items()}

    return {
        **{name: getattr(found, name) for name in ("date", "command", "machine", "daemon", "left_out")},
        "settings": {"rounds": found.rounds, **asdict(found.rules)},
        "points": [
            {
                **key._asdict(),
                **{name: spread(found.figure(key, value)) for name, value in FIGURES.items()},
                "cpu_ratio": spread(found.beside(key)),
                "p50_ratio": spread(found.beside(key, p50)),
            }
            for key in found.keys
        ],
        "refused": [{**key._asdict(), "reason": reason} for key, reason in found.refused.items()],
        "runs": [asdict(sample) for sample in found.samples],
    }


def line_of(sample: Sample) -> str:
    """One run in one line."""
    who = f"round {sample.round}  {sample.axis:<10}{sample.line:<22}{sample.x:>9,}"
    if sample.refused.startswith("failed"):
        return f"{who} {sample.refused}"
    figures = f"{sample.cpu_ns:>10,.0f} ns"
    if sample.fan_out > 1:
        figures += f"  {sample.cpu_ns / sample.fan_out:>8,.0f} a delivery"
    if sample.p50_us is not None and sample.p99_us is not None:
        figures += f"  p50 {sample.p50_us:,.1f} us  p99 {sample.p99_us:,.1f} us"
    if sample.held is not None:
        figures += f"  held {sample.held:,}"
    return f"{who}{figures}" + (f"  does not count: {sample.refused}" if sample.refused else "")
