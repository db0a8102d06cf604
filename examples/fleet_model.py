"""A fleet of hosts to be simulated: what its programs send, and what goes wrong.

Times are in seconds since its start, on a clock that is right; `Fleet.offsets` says by how much each host's own clock
is ahead of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Restart(NamedTuple):
    """A source restarts: ``start`` is its next seq (None: the clock in microseconds), ``port`` its port from then on
    (0: the previous one + 1)."""

    at: float
    start: int | None = None
    port: int = 0


class Burst(NamedTuple):
    """Additional messages, evenly within some seconds; on ``chan``, or the source's first channel."""

    at: float
    seconds: float
    messages: int
    chan: str = ""


class Loss(NamedTuple):
    """Datagrams that do not arrive: every nth seq with all its copies, or each copy with a probability. ``receiver``
    None: lost at the sender, for all receivers; ``src`` None: those of all sources."""

    receiver: str | None = None
    src: str | None = None
    start: float = 0.0
    end: float = float("inf")
    every: int = 0
    probability: float = 0.0


class Late(NamedTuple):
    """Every nth seq of a source, with all its copies, reaches a receiver ``delay`` seconds later."""

    receiver: str
    src: str
    every: int
    delay: float
    start: float = 0.0
    end: float = float("inf")


class Forged(NamedTuple):
    """Datagrams with a wrong checksum that claim to be of ``src``; all hosts refuse them."""

    at: float
    seconds: float
    datagrams: int
    src: str


class Recording(NamedTuple):
    """When a receiver records. ``fresh``: its daemon restarts with a new journal; else only the recorder restarts and
    continues the journal."""

    start: float = 0.0
    end: float = float("inf")
    fresh: bool = True


class Down(NamedTuple):
    """A host that is off: it sends and receives nothing, and its daemon restarts afterwards."""

    host: str
    start: float
    end: float


@dataclass(frozen=True)
class Source:
    """A program that sends. ``rate`` is in messages a second, evenly; ``heartbeat`` in seconds between them, 0 for
    none. ``start`` None numbers from the clock in microseconds, as the daemon's clients do. ``own`` False: the program
    does not use its host's daemon, which receives its messages like those of other hosts. What a source sends on
    ``bccn/report/<host>`` are reports of what the programs of its host's daemon have sent."""

    src: str
    host: str
    rate: float = 1.0
    start: int | None = None
    channels: tuple[str, ...] = ("data",)
    heartbeat: float = 0.0
    copies: int = 1
    restarts: tuple[Restart, ...] = ()
    bursts: tuple[Burst, ...] = ()
    port: int = 40_000
    since: float = 0.0
    until: float = float("inf")
    own: bool = True


@dataclass(frozen=True)
class Fleet:
    """Hosts, what they send, and what goes wrong. ``start`` is in seconds since 1970.

    ``segments`` and ``recordings`` name only the hosts that differ from the others, which are all on one segment and
    record all the time. ``sessionless`` are hosts whose session files are missing."""

    hosts: tuple[str, ...]
    sources: tuple[Source, ...]
    duration: float
    start: int = 1_788_000_000
    seed: int = 0
    losses: tuple[Loss, ...] = ()
    lates: tuple[Late, ...] = ()
    forged: tuple[Forged, ...] = ()
    downs: tuple[Down, ...] = ()
    offsets: Mapping[str, float] = field(default_factory=dict)
    recordings: Mapping[str, tuple[Recording, ...]] = field(default_factory=dict)
    segments: Mapping[str, str] = field(default_factory=dict)
    sessionless: frozenset[str] = frozenset()
