"""Figures of many runs: medians, ranges, ratios, and whether they stay within bounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from statistics import median
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tools.bench.measure import Result, Run

#: the case that the others are compared with
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

    def __format__(self, form: str) -> str:
        """The median with its range, which is left out where it cannot be seen."""
        least, most = format(self.least, form), format(self.most, form)
        return f"{self.median:{form}} ({least} to {most})" if least != most else format(self.median, form)


def as_json(found: Spread | None) -> dict[str, float] | None:
    return None if found is None else {name: round(value, 4) for name, value in asdict(found).items()}


def cpu(run: Result) -> float | None:
    return run.cpu_ns or None


def together(run: Result) -> float | None:
    """Relay and clients."""
    return run.cpu_ns + run.clients_ns


clients_cpu, rate, p50, p99, lost, rss = map(
    attrgetter, ("clients_ns", "messages_per_second", "p50_us", "p99_us", "lost", "rss_kib")
)
#: of bench.json
FIGURES: Final[dict[str, Callable[[Run], float | None]]] = {
    "cpu_ns": cpu,
    "clients_ns": clients_cpu,
    "messages_per_second": rate,
    "p50_us": p50,
    "p99_us": p99,
    "lost": lost,
    "rss_kib": rss,
}


class _OfARound(Protocol):
    @property
    def round(self) -> int: ...
    @property
    def refused(self) -> str: ...


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=_OfARound)


class Figures(Generic[K, R]):
    """The runs that count, by what they measured."""

    def __init__(self, runs: Iterable[tuple[K, R]], refused: Mapping[K, str]) -> None:
        self._by_key: dict[K, dict[int, R]] = {}
        for key, run in runs:
            if not run.refused and key not in refused:
                self._by_key.setdefault(key, {})[run.round] = run

    @property
    def keys(self) -> list[K]:
        return list(self._by_key)

    def rounds_of(self, key: K) -> int:
        return len(self._by_key.get(key, {}))

    def figure(self, key: K, value: Callable[[R], float | None]) -> Spread | None:
        found = [value(run) for run in self._by_key.get(key, {}).values()]
        known = [one for one in found if one is not None]
        return Spread.over(known) if known else None

    def ratio(self, above: K, below: K, value: Callable[[R], float | None]) -> Spread | None:
        """The first in terms of the second; None unless both have figures."""
        one, other = self.figure(above, value), self.figure(below, value)
        if one is None or other is None or not other.median:
            return None
        base = self._by_key[below]
        pairs = [(value(run), value(base[n])) for n, run in self._by_key[above].items() if n in base]
        known = [up / down for up, down in pairs if up is not None and down]
        if not known:
            return None
        rounds = Spread.over(known)
        return Spread(one.median / other.median, rounds.least, rounds.most)


class Summary(Figures[Key, Run]):
    """The figures of `python -m tools.bench`."""

    def __init__(self, runs: Iterable[Run], refused: Mapping[Key, str]) -> None:
        super().__init__(((Key(run.case, run.fan_out, run.mode), run) for run in runs), refused)

    def to_floor(self, key: Key, value: Callable[[Run], float | None] = cpu) -> Spread | None:
        return self.ratio(key, key.of(FLOOR), value)
