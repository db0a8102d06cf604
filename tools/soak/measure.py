"""What is measured at the end of each round of a soak, when everything rests, and whether any of it grows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import Final

from tools.bench.programs import kib_of

#: with fewer rounds growth is not judged, since tables are not full yet
ENOUGH: Final = 24
#: MB, or share of its size, by which a process may grow over the last half: pages may be in use in part
MEMORY: Final = 4.0
MEMORY_SHARE: Final = 0.05
#: growth of anything that is counted, over the last half
COUNTED: Final = 1.0


@dataclass
class Series:
    """A quantity over the rounds, in ``unit``; MB may grow by some, and what is counted hardly."""

    unit: str
    values: list[float] = field(default_factory=list)

    def growth(self) -> float:
        """Over the last half, by the median of the slopes between all pairs."""
        values = self.values[len(self.values) // 2 :]
        slopes = [(values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2)]
        return median(slopes) * (len(values) - 1) if slopes else 0.0

    def allowed(self) -> float:
        """By how much it may grow."""
        if self.unit != "MB":
            return COUNTED
        return max(MEMORY, median(self.values[len(self.values) // 2 :]) * MEMORY_SHARE)


class Book:
    """All series, made as they are met."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}

    def add(self, name: str, unit: str, value: float) -> None:
        self.series.setdefault(name, Series(unit)).values.append(value)

    def process(self, name: str, pid: int) -> None:
        """Take what a process takes now; nothing if it has just ended."""
        with suppress(FileNotFoundError, ProcessLookupError):
            self.add(f"{name}: descriptors", "", len(os.listdir(f"/proc/{pid}/fd")))
            self.add(f"{name}: resident", "MB", kib_of(pid) * 1024 / 1e6)

    def growing(self) -> list[str]:
        return [
            f"{name} grows: by {one.growth():.2f} {one.unit} over the last half, may by {one.allowed():.2f}"
            for name, one in self.series.items()
            if len(one.values) >= ENOUGH and one.growth() > one.allowed()
        ]

    def report(self, figures: Mapping[str, object], faults: Sequence[str]) -> str:
        """Figures, growth of each series, faults and the result, as text."""
        lines = [f"{value!s:>14}  {name}" for name, value in figures.items()]
        lines += ["", f"{'first':>9} {'last':>9} {'growth':>9} {'allowed':>9}  over the last half of the rounds"]
        for name, one in sorted(self.series.items()):
            numbers = (one.values[0], one.values[-1], one.growth(), one.allowed())
            lines.append(" ".join(f"{number:9.2f}" for number in numbers) + f"  {name} {one.unit}".rstrip())
        lines += ["", *(f"FAULT: {fault}" for fault in faults), "failed" if faults else "passed"]
        return "\n".join(lines) + "\n"
