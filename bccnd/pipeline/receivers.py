"""Which receivers there were on a day, when they were listening, and which sources they can hear at all.

A receiver listens while one of its sessions lasts, by its own clock; where the session of a journal is not known, from
the journal's first row of a day to its last. It can hear a source if it has, on that day, any row from a segment on
which some receiver heard that source; one without any rows may hear all sources, since nothing says that it cannot.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bccnd.pipeline.epoch_alignment import joined
from bccnd.pipeline.input_history import Stretch as Session
from bccnd.pipeline.row_batch import Numbers
from bccnd.pipeline.task_records import DAY, date_of


class Span(NamedTuple):
    """From when to when a journal had rows on a day."""

    host: str
    journal_id: str
    from_us: int
    to_us: int


class Seen(NamedTuple):
    """What the rows of a journal and segment on a day show of their receiver: times, new rows, all rows."""

    day: str
    host: str
    journal_id: str
    segment: str
    from_us: int
    to_us: int
    new: int
    rows: int

    @property
    def span(self) -> Span:
        return Span(self.host, self.journal_id, self.from_us, self.to_us)


class Interval(NamedTuple):
    """A stretch of a day on the common clock in which the same receivers were listening; ``end`` is no more part."""

    start: int
    end: int
    hosts: frozenset[str]


@dataclass(frozen=True)
class Receivers:
    """The receivers of some days.

    ``hosts`` are those with a row on a day, or with a session that overlaps it. ``audiences`` has, for the segments on
    which a source was heard, the hosts that can hear it; ``segments`` those of each source, on days on which there is
    more than one audience.
    """

    hosts: dict[str, list[str]] = field(default_factory=dict)
    intervals: dict[str, list[Interval]] = field(default_factory=dict)
    audiences: dict[str, dict[tuple[str, ...], frozenset[str]]] = field(default_factory=dict)
    segments: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def audience(self, day: str, src: str) -> frozenset[str]:
        """The hosts that can hear a source."""
        its = self.audiences.get(day, {})
        if len(set(its.values())) == 1:
            return next(iter(its.values()))
        return its.get(self.segments.get((day, src), ()), frozenset())


def receivers(
    seen: Sequence[Seen],
    reach: Mapping[tuple[str, str], tuple[str, ...]],
    sessions: Collection[Session],
    days: Collection[str],
    offsets: Mapping[tuple[str, str], int],
) -> Receivers:
    """The receivers of ``days``, from their rows, the segments of each (day, src), and how far the clock of each
    (day, host) is ahead."""
    found = Receivers()
    segments: dict[tuple[str, str], set[str]] = defaultdict(set)
    journals: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in seen:
        segments[row.day, row.host].add(row.segment)
        before = journals.get(row[:3], (row.from_us, row.to_us))
        journals[row[:3]] = min(before[0], row.from_us), max(before[1], row.to_us)
    together: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for (day, _), its in reach.items():
        together[day].add(its)
    known = {(session.host, session.journal_id) for session in sessions}
    for day in days:
        start = date_of(day) * DAY
        hosts = {session.host for session in sessions if session.start < start + DAY and session.end >= start}
        hosts |= {host for its_day, host in segments if its_day == day}
        found.hosts[day] = sorted(hosts)
        listened = [(one.host, one.start, one.end) for one in sessions if one.host in hosts]
        listened += [
            (host, first, last)
            for (its_day, host, journal), (first, last) in journals.items()
            if its_day == day and (host, journal) not in known
        ]
        found.intervals[day] = list(_intervals(day, listened, offsets))
        found.audiences[day] = {
            its: frozenset(
                host for host in hosts if (day, host) not in segments or not segments[day, host].isdisjoint(its)
            )
            for its in together[day]
        }
        if len(set(found.audiences[day].values())) > 1:
            found.segments.update({key: its for key, its in reach.items() if key[0] == day})
    return found


def _intervals(
    day: str, listened: Iterable[tuple[str, int, int]], offsets: Mapping[tuple[str, str], int]
) -> Iterator[Interval]:
    """Times of hosts, by their own clocks, as stretches between the moments at which any of them begins or ends."""
    start = date_of(day) * DAY - DAY
    changes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for host, first, last in listened:
        offset = offsets.get((day, host), 0)
        begins, ends = max(first - offset, start), min(last - offset + 1, start + 3 * DAY)
        if begins < ends:
            changes[begins].append((host, 1))
            changes[ends].append((host, -1))
    counts: dict[str, int] = defaultdict(int)
    since = 0
    for moment in sorted(changes):
        hosts = frozenset(host for host, count in counts.items() if count)
        if hosts:
            yield Interval(since, moment, hosts)
        for host, step in changes[moment]:
            counts[host] += step
        since = moment


def recorded(sessions: Collection[Session], journals: Iterable[Span]) -> dict[str, list[tuple[int, int]]]:
    """When each host was recording at all: from sessions, and for journals without one from their first and last rows
    of each day."""
    known = {(session.host, session.journal_id) for session in sessions}
    spans: dict[str, list[tuple[int, int]]] = {}
    for session in sessions:
        spans.setdefault(session.host, []).append((session.start, session.end + 1))
    for one in journals:
        if one[:2] not in known:
            spans.setdefault(one.host, []).append((one.from_us, one.to_us + 1))
    return {host: joined(some) for host, some in spans.items()}


def set_id(hosts: Iterable[str]) -> int:
    """64 bits that stand for a set of hosts, the same wherever and whenever it is seen."""
    names = "\n".join(sorted(hosts)).encode()
    return int.from_bytes(hashlib.blake2b(names, digest_size=8).digest(), "little", signed=True)


class Bits:
    """Sets of hosts as numbers of 64 bits each, as many as it takes: one row of numbers for each set."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = sorted(hosts)
        self.place = {host: place for place, host in enumerate(self.hosts)}
        self.words = max(1, -(-len(self.hosts) // 64))

    def of(self, sets: Sequence[Collection[str]]) -> Numbers:
        """The rows of sets."""
        found = np.zeros((len(sets), self.words), np.uint64)
        for row, hosts in enumerate(sets):
            for host in hosts:
                word, bit = divmod(self.place[host], 64)
                found[row, word] |= np.uint64(1 << bit)
        return found

    def single(self, places: Numbers) -> Numbers:
        """A row with one host each, by its place."""
        found = np.zeros((len(places), self.words), np.uint64)
        found[np.arange(len(places)), places // 64] = np.uint64(1) << (places % 64).astype(np.uint64)
        return found

    def names(self, row: Numbers) -> list[str]:
        """The hosts of a set."""
        return [
            self.hosts[word * 64 + bit]
            for word, value in enumerate(row.tolist())
            for bit in range(64)
            if value >> bit & 1
        ]
