"""What many runs say together: medians, ranges and ratios.

Law: only runs that count are counted, and a combination that was refused has no figures at all. A ratio is that of the
medians; its range is that of the rounds, each with itself, since a round's runs lie close together in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from tests.bench.measure import Run

#: what everybody is held against
FLOOR: Final = "floor_hmac"


class Key(NamedTuple):
    """Which figures: of which case, to how many clients, in which mode."""

    case: str
    fan_out: int
    mode: str

    def of(self, case: str) -> Key:
        return self._replace(case=case)


@dataclass(frozen=True)
class Spread:
    """A figure, and how far it spreads over the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Spread:
        found = sorted(values)
        return cls(median(found), found[0], found[-1])


Value = Callable[[Run], float | None]


def cpu(run: Run) -> float | None:
    return run.cpu_ns


def clients_cpu(run: Run) -> float | None:
    return run.clients_ns


def together(run: Run) -> float | None:
    """Relay and clients."""
    return run.cpu_ns + run.clients_ns


def rate(run: Run) -> float | None:
    return run.messages_per_second


def p50(run: Run) -> float | None:
    return run.p50_us


def p99(run: Run) -> float | None:
    return run.p99_us


def lost(run: Run) -> float | None:
    return run.lost


def rss(run: Run) -> float | None:
    return run.rss_kib


class Summary:
    """The runs that count, by what they measured."""

    def __init__(self, runs: Iterable[Run], refused: Mapping[Key, str]) -> None:
        self._runs: dict[Key, dict[int, Run]] = {}
        for run in runs:
            key = Key(run.case, run.fan_out, run.mode)
            if not run.refused and key not in refused:
                self._runs.setdefault(key, {})[run.round] = run

    @property
    def keys(self) -> list[Key]:
        return list(self._runs)

    def rounds(self, key: Key) -> int:
        return len(self._runs.get(key, {}))

    def figure(self, key: Key, value: Value) -> Spread | None:
        found = [value(run) for run in self._runs.get(key, {}).values()]
        known = [one for one in found if one is not None]
        return Spread.over(known) if known else None

    def ratio(self, above: Key, below: Key, value: Value) -> Spread | None:
        """The first in terms of the second; None unless both have figures."""
        one, other = self.figure(above, value), self.figure(below, value)
        if one is None or other is None or not other.median:
            return None
        pairs = ((value(run), value(self._runs[below][number])) for number, run in self._runs[above].items())
        rounds = Spread.over(up / down for up, down in pairs if up is not None and down)
        return Spread(one.median / other.median, rounds.least, rounds.most)

    def to_floor(self, key: Key, value: Value = cpu) -> Spread | None:
        return self.ratio(key, key.of(FLOOR), value)
