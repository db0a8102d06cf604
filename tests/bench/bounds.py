"""What the figures are held against with --check.

Law: a bound is a ratio of two cases of the same run, never a time, so that it holds on any machine; and a bound that
was asked for and has no figure does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.bench.summary import FLOOR, Key, Spread, Summary, Value, cpu, p50, together

WHAT: Final[dict[Value, str]] = {cpu: "CPU", p50: "median latency", together: "CPU, clients included"}


@dataclass(frozen=True)
class Bound:
    """At most so much of the other case."""

    above: str
    below: str
    fan_out: int
    mode: str
    most: float
    value: Value = cpu

    def __str__(self) -> str:
        what = WHAT[self.value]
        return f"{what} of {self.above}, of that of {self.below}, {self.mode}, fan-out {self.fan_out}"


@dataclass(frozen=True)
class Verdict:
    """What came of a bound."""

    bound: Bound
    figure: Spread | None

    @property
    def holds(self) -> bool:
        return self.figure is not None and self.figure.median <= self.bound.most

    def __str__(self) -> str:
        if self.figure is None:
            return f"does not hold: {self.bound}: no figure; at most {self.bound.most:.2f}"
        said = "holds" if self.holds else "does not hold"
        spread = f"{self.figure.least:.3f} to {self.figure.most:.3f}"
        return f"{said}: {self.bound}: {self.figure.median:.3f} ({spread}); at most {self.bound.most:.2f}"


def at(above: str, below: str, mode: str, most: dict[int, float], value: Value = cpu) -> Iterator[Bound]:
    for fan_out, limit in most.items():
        yield Bound(above, below, fan_out, mode, limit, value)


BOUNDS: Final = (
    *at("bccnd", FLOOR, "saturated", {1: 1.10, 8: 1.05, 64: 1.05}),
    *at("bccnd", FLOOR, "paced", {1: 1.20, 8: 1.10, 64: 1.05}),
    *at("bccnd_plain", "floor", "saturated", {1: 1.25, 8: 1.10, 64: 1.05}),
    *at("bccnd_batch", "floor_batch", "saturated", {8: 1.40, 64: 1.40}),
    *at("bccnd_batch", "redis", "saturated", {8: 1.10, 64: 0.35}),
    *at("bccnd", FLOOR, "paced", {1: 1.10}, p50),
    *at("bccnd_each", "listeners", "saturated", {8: 0.22, 64: 0.02}),
    *at("bccnd_each", "listeners", "saturated", {8: 0.45, 64: 0.06}, together),
    *at("bccnd_gateways", "bccnd", "saturated", {1: 1.05, 8: 1.05, 64: 1.05}),
    *at("bccnd_patterns", "bccnd_pattern", "saturated", {64: 1.10}),
)


def judge(summary: Summary, asked: set[Key]) -> list[Verdict]:
    """The bounds between cases that were asked for."""
    verdicts = []
    for bound in BOUNDS:
        above = Key(bound.above, bound.fan_out, bound.mode)
        below = above.of(bound.below)
        if {above, below} <= asked:
            verdicts.append(Verdict(bound, summary.ratio(above, below, bound.value)))
    return verdicts
