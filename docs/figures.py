"""The measured figures that documents quote: docs/figures.json, as it is read, and how a page writes them.

`make bench` and `make scale` write the file. A section has the figures of one axis, `{figure: {line: {x: value}}}`, and
says when and where they were measured. docs/quotes.py says which sentence quotes which figure.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

#: ns that the kernel takes to send and receive a datagram, at full load
RECEIVING: Final = 3000

PATH: Final = Path(__file__).with_name("figures.json")
_FRACTIONS: Final = (
    "half",
    "a third",
    "a quarter",
    "a fifth",
    "a sixth",
    "a seventh",
    "an eighth",
    "a ninth",
    "a tenth",
)
_NUMBERS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


class Figures:
    """The sections of the file. A figure that is missing raises KeyError."""

    def __init__(self, sections: dict[str, Any] | None = None) -> None:
        self.sections: dict[str, Any] = json.loads(PATH.read_text()) if sections is None else sections

    def about(self, section: str) -> dict[str, Any]:
        """Return when and where a section was measured: date, machine, daemon, rounds."""
        found: dict[str, Any] = self.sections[section]["about"]
        return found

    def value(self, axis: str, figure: str, line: str, x: int) -> float:
        return float(self.sections[axis][figure][line][str(x)])

    def spread(self, case: str, clients: int, mode: str = "saturated") -> tuple[float, float, float]:
        """Return the median, the least and the most ns of `make bench` for a message."""
        least, most = self.sections[mode]["range"][case][str(clients)]
        return self.cpu(case, clients, mode), least, most

    def cpu(self, case: str, clients: int, mode: str = "saturated") -> float:
        return self.value(mode, "cpu_ns", case, clients)

    def latency(self, case: str, clients: int) -> float:
        """Return the median latency in us at 2,000 messages a second."""
        return self.value("paced", "p50_us", case, clients)

    def scale(self, axis: str, line: str, x: int) -> float:
        """Return the ns of `make scale` for a message."""
        return self.value(axis, "cpu_ns", line, x)

    def client(self, name: str) -> float:
        """Return what each further client adds."""
        return float(self.sections["clients"]["constants"][name])

    def idle(self, name: str, sources: int = 0) -> float:
        """Return a figure of a daemon without traffic."""
        return self.value("idle", name, "bccnd", sources)


def thousands(value: float) -> str:
    return f"{value:,.0f}"


def us(ns: float) -> str:
    """Write a duration in us, with two digits."""
    return f"{ns / 1000:.1f}" if ns < 9950 else f"{ns / 1000:.0f}"


def two_digits(value: float, down: bool = False) -> str:
    """Write a number with two digits that count, rounded down where a page says "at least"."""
    unit = 10 ** max(0, len(str(int(value))) - 2)
    return thousands((value // unit if down else round(value / unit)) * unit)


def per_second(ns: float) -> str:
    """Write how many messages a second one core handles at least, with the kernel's receiving of each."""
    return two_digits(1e9 / (ns + RECEIVING), down=True)


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def fraction(share: float) -> str:
    """Write a share from a tenth to two thirds as the nearest fraction in words. Raises ValueError: a sentence about
    such a share does not fit another one."""
    if not 1 / (len(_FRACTIONS) + 1.5) < share <= 2 / 3:
        raise ValueError(f"{share:.2f} is no share from a tenth to two thirds: rewrite the sentence in docs/quotes.py")
    return _FRACTIONS[round(1 / share) - 2]


def times(ratio: float) -> str:
    """Write a small multiple in words."""
    return _NUMBERS[round(ratio) - 2]
