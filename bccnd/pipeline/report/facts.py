"""What a report knows: a few numbers about a period, small however large the tables were.

Law: plain values and nothing else; times are microseconds since 1970, UTC. Names are as they were sent and may hold
anything: whoever shows them must make them harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


def sending_host(src: str) -> str:
    """The host in the name of a sender: all before the first slash."""
    return src.partition("/")[0]


class Link(NamedTuple):
    """What became, at one receiving host, of what one sender (or all senders of a host) sent."""

    host: str
    sender: str
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
        """Messages that should have come, and for which the host was listening."""
        return max(self.expected - self.not_listening, 0)

    @property
    def lost(self) -> int:
        return self.lost_here + self.lost_everywhere

    @property
    def ratio(self) -> float:
        return self.lost / self.due if self.due else 0.0

    @property
    def own(self) -> bool:
        """Whether this is a host that hears itself."""
        return sending_host(self.sender) == self.host


def by_sending_host(links: Iterable[Link]) -> list[Link]:
    """The same, with all senders of a host taken together."""
    sums: dict[tuple[str, str], list[int]] = {}
    for link in links:
        row = sums.setdefault((link.host, sending_host(link.sender)), [0] * (len(link) - 2))
        for place, value in enumerate(link[2:]):
            row[place] += int(value)
    return [Link(host, sender, *values) for (host, sender), values in sums.items()]


@dataclass(frozen=True)
class Course:
    """How something went over the period, in equal steps: messages due, of these lost, and those nobody listened to."""

    due: tuple[int, ...]
    lost: tuple[int, ...]
    absent: tuple[int, ...]


class Epoch(NamedTuple):
    """One run of a sender: from when to when, how it began, how many hosts heard it, and the numbers skipped before."""

    src: str
    number: int
    first: int
    last: int
    cause: str
    hosts: int
    skipped: int = 0


class Silence(NamedTuple):
    """A sender that was not heard: by one host, or by nobody (None). ``end`` is None where it did not come back."""

    host: str | None
    src: str
    start: int
    end: int | None
    kind: str
    basis: str


class Delivery(NamedTuple):
    """How many messages were seen by exactly these hosts."""

    hosts: frozenset[str]
    messages: int


class Channel(NamedTuple):
    """Traffic of a channel: each message counts once, not once for each receiver. ``peak`` is of its busiest minute."""

    name: str
    messages: int
    octets: int
    longest: int
    directed: bool
    peak: int
    busiest: str
    busiest_messages: int


class Refusals(NamedTuple):
    """Datagrams from one address that were refused for one reason. ``datagrams`` is of the host that refused most:
    many hosts hear the same one."""

    peer: str
    verdict: str
    datagrams: int
    hosts: int
    claimed: tuple[str, ...]
    names: int
    first: int
    last: int


class Clock(NamedTuple):
    """A host's clock against that of another one, in microseconds; above 0 it is ahead."""

    host: str
    against: str
    low: int
    middle: int
    high: int
    pairs: int


@dataclass(frozen=True)
class Facts:
    """All that a page shows and that findings are drawn from."""

    start: int
    end: int
    #: microseconds of one step of the courses
    step: int
    hosts: tuple[str, ...]
    senders: int
    messages: int
    links: tuple[Link, ...]
    receivers: Mapping[str, Course] = field(default_factory=dict)
    #: by sending host
    sending: Mapping[str, Course] = field(default_factory=dict)
    epochs: tuple[Epoch, ...] = ()
    silences: tuple[Silence, ...] = ()
    delivery: tuple[Delivery, ...] = ()
    channels: tuple[Channel, ...] = ()
    refusals: tuple[Refusals, ...] = ()
    clocks: tuple[Clock, ...] = ()
    #: what there was more of than is listed one by one, in words of `folded`: how many
    folded: Mapping[str, int] = field(default_factory=dict)
    #: tables that are not there
    missing: tuple[str, ...] = ()
    #: of all channels and senders, listed or not
    all_messages: int = 0
    all_channels: int = 0
    #: what all links beyond those listed sum up to
    rest: Link | None = None

    @property
    def period(self) -> int:
        return max(self.end - self.start, 0)

    @property
    def due(self) -> int:
        """Messages that should have come, over all receivers, without what hosts hear of themselves."""
        return sum(link.due for link in self._others())

    @property
    def lost(self) -> int:
        return sum(link.lost for link in self._others())

    def _others(self) -> list[Link]:
        return [*(link for link in self.links if not link.own), *([self.rest] if self.rest else [])]

    @property
    def refused(self) -> int:
        return sum(one.datagrams for one in self.refusals)
