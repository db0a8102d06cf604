"""The figures of a report: small, however large the tables are.

Times are microseconds since 1970, UTC. Names are as they were sent and may hold anything; the page escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


def sending_host(name: str) -> str:
    """Return the host in the name of a source or program: all before the first slash."""
    return name.partition("/")[0]


class Link(NamedTuple):
    """Counts of what one receiving host got of one program, or of all programs of a host."""

    host: str
    program: str
    expected: int
    any_seen: int
    seen: int
    lost_here: int
    lost_everywhere: int
    not_listening: int
    dup: int
    late: int

    @property
    def due(self) -> int:
        return max(self.expected - self.not_listening, 0)

    @property
    def lost(self) -> int:
        return self.lost_here + self.lost_everywhere

    @property
    def ratio(self) -> float | None:
        """Return the share of what was due that was lost; None if nothing was due."""
        return self.lost / self.due if self.due else None

    @property
    def own(self) -> bool:
        """Return whether the host receives its own messages, which do not cross the network."""
        return sending_host(self.program) == self.host


def add_links(links: Iterable[Link]) -> list[Link]:
    """Add up links with the same host and program."""
    sums: dict[tuple[str, str], list[int]] = {}
    for host, program, *counts in links:
        row = sums.setdefault((host, program), [0] * len(counts))
        row[:] = map(sum, zip(row, counts, strict=True))
    return [Link(*names, *row) for names, row in sums.items()]


def by_sending_host(links: Iterable[Link]) -> list[Link]:
    return add_links(link._replace(program=sending_host(link.program)) for link in links)


class Course(NamedTuple):
    """Counts over the period, in equal steps: due, lost, and sent while the host was not recording."""

    due: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()

    @property
    def ratio(self) -> float | None:
        return sum(self.lost) / sum(self.due) if sum(self.due) else None


def add_courses(courses: Iterable[Course]) -> Course:
    return Course(*(tuple(map(sum, zip(*part, strict=True))) for part in zip(*courses, strict=True)))


class Start(NamedTuple):
    """A run of a source that is not its first. ``cause`` is that of epochs, or `replaced`: by a new process."""

    program: str
    at: int
    cause: str
    skipped: int = 0


class Unordered(NamedTuple):
    """A program with sources whose numbers have no order; ``at`` is when the last of them was found out."""

    program: str
    sources: int
    at: int


class Silence(NamedTuple):
    """A time in which no host received a program; ``end`` is None if it did not come back."""

    program: str
    start: int
    end: int | None
    kind: str
    basis: str


class Delivery(NamedTuple):
    """How many messages were received by exactly these hosts."""

    hosts: frozenset[str]
    messages: int


class Channel(NamedTuple):
    """Traffic of a channel; ``peak`` is of its busiest minute, ``due`` and ``lost`` count arrivals at all receivers."""

    name: str
    messages: int
    octets: int
    longest: int
    peak: int
    busiest: str
    busiest_messages: int
    due: int = 0
    lost: int = 0

    @property
    def ratio(self) -> float | None:
        return self.lost / self.due if self.due else None


class BusTraffic(NamedTuple):
    """Heartbeats and reports, which daemons and programs send for the bus itself."""

    channels: int = 0
    messages: int = 0
    octets: int = 0


class Refusals(NamedTuple):
    """Datagrams from one address refused for one reason; ``datagrams`` by the host that refused most of them."""

    peer: str
    verdict: str
    datagrams: int
    hosts: int
    claimed: list[str]
    names: int
    first: int
    last: int


class Clock(NamedTuple):
    """A host's clock compared with another host's, in microseconds; positive if it is ahead."""

    host: str
    against: str
    low: int
    middle: int
    high: int
    pairs: int


class Recording(NamedTuple):
    """When a host recorded, with what version, and what did not get into its journal."""

    host: str
    start: int
    end: int
    version: str
    socket_drops: int
    tap_gaps: int


class MissingRecords(NamedTuple):
    """Records of a host that are in no file of the journal, and the times of those before and behind them."""

    host: str
    journal: str
    first: int
    last: int
    start: int | None
    end: int | None


class UnusableFile(NamedTuple):
    """A file of the journal that was set aside, and why."""

    host: str
    path: str
    why: str

    @property
    def has_unknown_clock(self) -> bool:
        return self.why.startswith("unknown clock")

    @property
    def reason(self) -> str:
        """Return why it was set aside, with its path."""
        return self.why if self.path in self.why else f"{self.path}: {self.why}"


@dataclass(frozen=True)
class Facts:
    """All that findings and the page are made from."""

    start: int
    end: int
    #: microseconds of one step of the courses
    step: int
    hosts: tuple[str, ...]
    links: tuple[Link, ...]
    #: by receiving host, by sending host, and by receiving host in the same hours of the day before
    receivers: Mapping[str, Course] = field(default_factory=dict)
    sending: Mapping[str, Course] = field(default_factory=dict)
    before: Mapping[str, Course] = field(default_factory=dict)
    starts: tuple[Start, ...] = ()
    unordered: tuple[Unordered, ...] = ()
    silences: tuple[Silence, ...] = ()
    delivery: tuple[Delivery, ...] = ()
    channels: tuple[Channel, ...] = ()
    refusals: tuple[Refusals, ...] = ()
    clocks: tuple[Clock, ...] = ()
    recordings: tuple[Recording, ...] = ()
    missing: tuple[MissingRecords, ...] = ()
    unusable: tuple[UnusableFile, ...] = ()
    #: what is left out of the lists above: how many
    folded: Mapping[str, int] = field(default_factory=dict)
    #: of all channels, with those of the bus itself, which are not in ``channels``
    messages: int = 0
    bus: BusTraffic = field(default_factory=BusTraffic)
    #: the sum of all links that are not listed
    rest: Link | None = None

    @property
    def period(self) -> int:
        return max(self.end - self.start, 0)

    def absences(self, host: str) -> list[tuple[int, int]]:
        """Return when a host was not recording: the steps in which most messages were not counted as due."""
        course, spans = self.receivers.get(host, Course()), list[tuple[int, int]]()
        for step, (due, absent) in enumerate(zip(course.due, course.absent, strict=True)):
            if absent and absent >= due:
                start, end = self.start + step * self.step, min(self.start + (step + 1) * self.step, self.end)
                spans.append((spans.pop()[0] if spans and spans[-1][1] == start else start, end))
        return spans

    @property
    def crossing(self) -> Link:
        """Return the sum of all links, without a host's own messages."""
        links = [*(link for link in self.links if not link.own), *([self.rest] if self.rest else [])]
        return next(iter(add_links(link._replace(host="", program="") for link in links)), Link("", "", *[0] * 8))
