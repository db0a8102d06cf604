"""Which receivers there were on a day, when they were listening, and which sources they can hear at all.

A receiver listens while one of its sessions lasts, by its own clock; where the session of a journal is not known, from
the journal's first row of a day to its last. It can hear a source if it has, on that day, any row from a segment on
which some receiver heard that source; one without any rows may hear all sources, since nothing proves that it cannot.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bccnd.pipeline.hosts.reach import Reach
from bccnd.pipeline.inputs.input_history import Session
from bccnd.pipeline.records.row_batch import Numbers
from bccnd.pipeline.records.task_records import DAY, date_of
from bccnd.pipeline.records.time_spans import joined


class JournalSpan(NamedTuple):
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
    def span(self) -> JournalSpan:
        return JournalSpan(self.host, self.journal_id, self.from_us, self.to_us)


class Interval(NamedTuple):
    """A stretch of a day on the common clock in which the same receivers were listening; ``end`` is no more part."""

    start: int
    end: int
    hosts: frozenset[str]


class Receivers(NamedTuple):
    """The receivers of some days: when which of them were listening, which can hear most sources (by day), and which
    can hear each of the others (day, src)."""

    intervals: Mapping[str, Sequence[Interval]]
    usual: Mapping[str, frozenset[str]]
    unusual: Mapping[tuple[str, str], frozenset[str]]

    def audience(self, day: str, src: str) -> frozenset[str]:
        """The hosts that can hear a source on a day."""
        return self.unusual.get((day, src), self.usual.get(day, frozenset()))


def find_receivers(
    seen: Sequence[Seen],
    reach: Reach,
    sessions: Collection[Session],
    days: Collection[str],
    offsets: Mapping[tuple[str, str], int],
) -> Receivers:
    """The receivers of ``days``, from their rows, the segments on which sources are heard, and how far the clock of
    each (day, host) is ahead."""
    segments: dict[tuple[str, str], set[str]] = defaultdict(set)
    journals: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in seen:
        segments[row.day, row.host].add(row.segment)
        first, last = journals.get(row[:3], (row.from_us, row.to_us))
        journals[row[:3]] = min(first, row.from_us), max(last, row.to_us)
    with_sessions = {session[:2] for session in sessions}
    hosts: dict[str, set[str]] = {}
    intervals = {}
    for day in days:
        start = date_of(day) * DAY
        hosts[day] = {session.host for session in sessions if session.start < start + DAY and session.end >= start}
        hosts[day] |= {host for of_day, host in segments if of_day == day}
        listened = [(session.host, session.start, session.end) for session in sessions if session.host in hosts[day]]
        listened += [
            (host, first, last)
            for (of_day, host, journal), (first, last) in journals.items()
            if of_day == day and (host, journal) not in with_sessions
        ]
        intervals[day] = list(_intervals(day, listened, offsets))
    # Most sources have the same audience, which is sent to every task.
    shared: dict[tuple[str, frozenset[str]], frozenset[str]] = {}

    def audience(day: str, of_source: frozenset[str]) -> frozenset[str]:
        if (day, of_source) not in shared:
            deaf = {host for host in hosts[day] if segments.get((day, host), of_source).isdisjoint(of_source)}
            shared[day, of_source] = frozenset(hosts[day] - deaf)
        return shared[day, of_source]

    usual = {day: audience(day, of_source) for day, of_source in reach.usual.items() if day in hosts}
    unusual = {(day, src): audience(day, of_source) for (day, src), of_source in reach.unusual.items() if day in hosts}
    return Receivers(intervals, usual, unusual)


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


def recorded(sessions: Collection[Session], journals: Iterable[JournalSpan]) -> dict[str, list[tuple[int, int]]]:
    """When each host was recording at all: from sessions, and for journals without one from their first and last rows
    of each day."""
    with_sessions = {session[:2] for session in sessions}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    without_session = (span for span in journals if span[:2] not in with_sessions)
    for host, _, start, end in [*(session[:4] for session in sessions), *without_session]:
        spans[host].append((start, end + 1))
    return {host: joined(of_host) for host, of_host in spans.items()}


def set_id(hosts: Iterable[str]) -> int:
    """64 bits that stand for a set of hosts, the same wherever and whenever it is seen."""
    names = "\n".join(sorted(hosts)).encode()
    return int.from_bytes(hashlib.blake2b(names, digest_size=8).digest(), "little", signed=True)


class Bits:
    """Sets of hosts as numbers of 64 bits each, as many as it takes: one row of numbers for each set."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = sorted(hosts)
        self.index = {host: index for index, host in enumerate(self.hosts)}
        self.words = max(1, -(-len(self.hosts) // 64))

    def of(self, sets: Sequence[Collection[str]]) -> Numbers:
        """Sets as rows."""
        bits = np.zeros((len(sets), self.words), np.uint64)
        for row, hosts in enumerate(sets):
            for host in hosts:
                word, bit = divmod(self.index[host], 64)
                bits[row, word] |= np.uint64(1 << bit)
        return bits

    def single(self, indexes: Numbers) -> Numbers:
        """Sets of one host each, by its index."""
        return self.of([[host] for host in self.hosts])[indexes]

    def names(self, row: Numbers) -> list[str]:
        """The hosts of a set."""
        words = row.tolist()
        return [host for host, index in self.index.items() if words[index // 64] >> index % 64 & 1]
