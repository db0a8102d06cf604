"""What is measured: a relay with clients and a stream, at some points of an axis along which something grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tools.bench.cases import CHANNELS, SIZE, WINDOW, Case

#: messages a second when they are paced
PACE: Final = 2000


@dataclass(frozen=True)
class Stream:
    """What is sent in one run."""

    messages: int
    #: sent before anything is measured
    warm: int = 0
    channels: int = CHANNELS
    #: messages in a row on one channel; 1: all channels by turns
    run: int = 1
    sources: int = 4
    #: with the names that programs have on real hosts
    long_names: bool = False
    #: bytes of the whole datagram
    size: int = SIZE
    window: int = WINDOW
    #: of loopback; the daemon hears it wherever it is sent
    address: str = "127.0.0.1"
    #: seconds between what comes before and what is measured
    pause: float = 0.0
    #: with so many messages a second, and the time in each; or as fast as it goes
    paced: bool = False


@dataclass(frozen=True)
class Point:
    """One run's worth; ``first`` is the line on which the figures of what was sent before are shown."""

    axis: str
    line: str
    x: int
    case: Case
    clients: int
    stream: Stream
    first: str = ""
    #: one message in so many is for somebody
    every: int = 1

    @property
    def unit(self) -> int:
        """What the number of messages is a multiple of."""
        return self.clients if "-e" in self.case.clients else self.every

    @property
    def total(self) -> int:
        """Messages of the whole run."""
        return self.stream.warm + self.stream.messages

    @property
    def deliveries(self) -> int:
        """Of all that is sent."""
        return self.case.deliveries(self.clients, self.total // self.every)


class Line(NamedTuple):
    """What is compared along an axis; ``floor`` names the line that it is held against, x by x."""

    name: str
    title: str
    floor: str = ""


@dataclass(frozen=True)
class Axis:
    """One thing that grows."""

    name: str
    title: str
    #: what x counts
    x: str
    lines: tuple[Line, ...]
    points: Callable[[bool], list[Point]]
    #: what a line without a floor is held against; None: its own first point
    base: Callable[[str], tuple[str, int]] | None = None

    def line(self, name: str) -> Line:
        return next(line for line in self.lines if line.name == name)
