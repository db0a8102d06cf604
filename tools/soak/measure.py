"""What is measured at the end of each round of a soak, when everything rests, and whether any of it grows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Final

from tools.bench.procs import cpu_of, kib_of

#: with fewer rounds growth is not judged, since tables are not full yet
ENOUGH: Final = 24
#: bytes by which a process may grow over the last half, because of pages that are in use in part
MEMORY: Final = 4 << 20
#: or this share of its size, if that is more
MEMORY_SHARE: Final = 0.05
#: growth of anything that is counted, over the last half
COUNTED: Final = 1.0
#: relative growth of CPU time a message; generous, since other programs use the machine as well
CPU_SHARE: Final = 0.5


@dataclass
class Sample:
    """One process at the end of one round."""

    pid: int
    rss: int
    descriptors: int
    cpu: float


@dataclass
class Series:
    """A quantity over the rounds; ``bound``: by how much it may grow over the last half, None: as it likes."""

    name: str
    unit: str
    bound: float | None
    rounds: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def growth(self) -> float:
        """Over the last half."""
        half = len(self.rounds) // 2
        rounds, values = self.rounds[half:], self.values[half:]
        return slope(rounds, values) * (rounds[-1] - rounds[0]) if len(rounds) > 1 else 0.0

    def allowed(self) -> float | None:
        """By how much it may grow."""
        if self.bound is None or len(self.rounds) < ENOUGH:
            return None
        typical = median(self.values[len(self.values) // 2 :])
        if self.unit == "MB":
            return max(self.bound, typical * MEMORY_SHARE)
        return max(self.bound, typical * CPU_SHARE) if self.unit == "us" else self.bound


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The median of the slopes between all pairs."""
    slopes = [(ys[j] - ys[i]) / (xs[j] - xs[i]) for i, j in combinations(range(len(xs)), 2) if xs[j] != xs[i]]
    return median(slopes) if slopes else 0.0


def sample(pid: int) -> Sample | None:
    """What a process takes now; nothing if it has just ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Sample(pid, kib_of(pid) << 10, len(os.listdir(f"/proc/{pid}/fd")), cpu_of(pid) / 1e9)
    return None


class Book:
    """All series, made as they are met."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self._before: dict[str, tuple[int, float, float]] = {}

    def add(self, name: str, unit: str, bound: float | None, number: int, value: float) -> None:
        one = self.series.setdefault(name, Series(name, unit, bound))
        one.rounds.append(number)
        one.values.append(value)

    def process(self, name: str, number: int, found: Sample) -> None:
        self.add(f"{name}: resident", "MB", MEMORY / 1e6, number, found.rss / 1e6)
        self.add(f"{name}: descriptors", "", COUNTED, number, found.descriptors)

    def cost(self, name: str, number: int, found: Sample, handled: float) -> None:
        """CPU per datagram and message that a daemon has handled since the last round, if it is still the same."""
        before = self._before.get(name)
        self._before[name] = (found.pid, found.cpu, handled)
        if before is not None and before[0] == found.pid and handled > before[2]:
            cost = (found.cpu - before[1]) / (handled - before[2]) * 1e6
            self.add(f"{name}: CPU a message", "us", 0.0, number, cost)

    def growing(self) -> list[str]:
        return [
            f"{one.name} grows: by {one.growth():.2f} {one.unit} over the last half, may by {allowed:.2f}"
            for one in self.series.values()
            if (allowed := one.allowed()) is not None and one.growth() > allowed
        ]

    def report(self, figures: Mapping[str, object], faults: Sequence[str]) -> str:
        """Figures, growth of each series, faults and the result, as text."""
        lines = [f"{value!s:>14}  {name}" for name, value in figures.items()]
        lines += ["", f"{'first':>9} {'last':>9} {'growth':>9} {'allowed':>9}  over the last half of the rounds"]
        for one in sorted(self.series.values(), key=lambda one: one.name):
            allowed = one.allowed()
            limit = "" if allowed is None else f"{allowed:.2f}"
            unit = f" ({one.unit})" if one.unit else ""
            lines.append(f"{one.values[0]:9.2f} {one.values[-1]:9.2f} {one.growth():9.2f} {limit:>9}  {one.name}{unit}")
        lines += ["", *(f"FAULT: {fault}" for fault in faults), "failed" if faults else "passed"]
        return "\n".join(lines) + "\n"
