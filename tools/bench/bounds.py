"""What the figures are held against with --check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tools.bench.measure import Run
from tools.bench.summary import FLOOR, Key, Summary, Verdict, cpu, p50

Value = Callable[[Run], float | None]
WHAT: Final[dict[Value, str]] = {cpu: "CPU", p50: "median latency"}


class Bound(NamedTuple):
    """At most so much of the other case."""

    above: Key
    below: Key
    most: float
    value: Value

    @property
    def what(self) -> str:
        above, below = self.above, self.below
        what = WHAT[self.value]
        return f"{what} of {above.case}, of that of {below.case}, {above.mode}, fan-out {above.fan_out}"


def at(above: str, below: str, mode: str, most: dict[int, float], value: Value = cpu) -> Iterator[Bound]:
    for fan_out, limit in most.items():
        yield Bound(Key(above, fan_out, mode), Key(below, fan_out, mode), limit, value)


BOUNDS: Final = (
    *at("bccnd", FLOOR, "saturated", {1: 1.10, 8: 1.05, 64: 1.05}),
    *at("bccnd", FLOOR, "paced", {1: 1.20, 8: 1.10, 64: 1.05}),
    *at("bccnd", "floor_epoll", "paced", {1: 1.40, 8: 1.40, 64: 1.05}),
    *at("bccnd", "redis", "paced", {1: 0.90, 8: 0.90}),
    *at("bccnd_plain", "floor", "saturated", {1: 1.25, 8: 1.10, 64: 1.05}),
    *at("bccnd_batch", "floor_batch", "saturated", {8: 1.40, 64: 1.40}),
    *at("bccnd_batch", "redis", "saturated", {8: 1.10, 64: 0.35}),
    *at("bccnd", FLOOR, "paced", {1: 1.10}, p50),
    *at("bccnd", "redis", "paced", {1: 1.00, 8: 1.00}, p50),
    *at("bccnd_gateways", "bccnd", "saturated", {1: 1.05, 8: 1.05, 64: 1.05}),
)


def judge(summary: Summary, asked: set[Key]) -> list[Verdict]:
    """The bounds between cases that were asked for."""
    return [
        Verdict(one.what, summary.ratio(one.above, one.below, one.value), one.most)
        for one in BOUNDS
        if {one.above, one.below} <= asked
    ]
