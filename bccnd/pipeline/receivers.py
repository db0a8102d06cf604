"""Which receivers there were on a day, when they were listening, and which sources they can hear at all.

A receiver listens while one of its sessions lasts. Times are moved as the clock of the session demands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bccnd.journal.file_names import DAY, start_of
from bccnd.pipeline.clocks import Clocks

if TYPE_CHECKING:
    from bccnd.pipeline.inputs.sessions import JournalSession
    from bccnd.pipeline.inputs.verification import JournalFile

#: microseconds; rows so near to midnight are looked at for both days: clocks differ by up to half a minute when they
#: have been corrected, and copies come late
MARGIN: Final = 90_000_000
_ENDLESS: Final = 2**62


class Hearer(NamedTuple):
    """A session of a receiver: its records from ``from_rec`` to ``to_rec``, whose times are moved back by ``shift`` and
    are then ``ahead`` of the common clock by so much."""

    id: int
    host_id: int
    host: str
    journal_id: str
    from_rec: int
    to_rec: int
    shift: int
    ahead: int


@dataclass(frozen=True)
class Receivers:
    """The receivers of a day. ``listening``: from when on which hosts were listening, on the common clock;
    ``reach``: the segments of which hosts have rows; ``silent``: hosts that recorded nothing; ``recorded``: when any
    host was recording."""

    hosts: list[str]
    hearers: list[Hearer]
    listening: list[tuple[int, list[int]]]
    reach: list[tuple[int, str]]
    silent: list[int]
    recorded: list[tuple[int, int]]
    files: list[tuple[str, bool]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def moved(file: JournalFile, clocks: Clocks, sessions: Sequence[JournalSession]) -> tuple[int, int]:
    """The times of the first and the last row of a file of a journal with these sessions, by the corrected clock."""
    shifts = [clocks.of(_key(session), file.day).shift for session in sessions if _holds(session, file)]
    shifts = shifts or [clocks.of((*file.journal, 0), file.day).shift]
    return file.low_us - max(shifts), file.high_us - min(shifts)


def _key(session: JournalSession) -> tuple[str, str, int]:
    return session.host, session.journal_id, session.start_us


def _holds(session: JournalSession, file: JournalFile) -> bool:
    return session.start_us <= file.high_us and file.low_us <= session.end_us


def find_receivers(
    day: str,
    spans: Mapping[JournalFile, tuple[int, int]],
    of_journal: Mapping[tuple[str, str], Sequence[JournalSession]],
    clocks: Clocks,
) -> Receivers:
    """The receivers of a day, from the files with rows of it or of its margins, with their times by the corrected
    clock, and the sessions of all journals."""
    start, end = start_of(day), start_of(day) + DAY
    of_day = {file for file, (low, high) in spans.items() if high >= start and low < end}
    listened = list(_listened(day, of_journal, clocks))
    present = {host for host, low, high in listened if low < end and high >= start}
    hosts = sorted(present | {file.host for file in spans})
    ids = {host: number for number, host in enumerate(hosts)}
    hearers = [
        Hearer(number, ids[found[0]], *found)
        for number, found in enumerate(
            hearer
            for journal in sorted({file.journal for file in spans})
            for hearer in _hearers(journal, of_journal.get(journal, ()), clocks, day)
        )
    ]
    with_rows = {file.host for file in of_day}
    window = start - DAY, end + DAY
    spans_of_day = [(ids[host], low, high) for host, low, high in listened if host in ids]
    # What is farther away is not known to have been deaf.
    listening = [(-_ENDLESS, list(range(len(hosts)))), (window[0], []), *_intervals(spans_of_day, *window)]
    return Receivers(
        hosts,
        hearers,
        listening,
        sorted({(ids[file.host], segment) for file in of_day for segment in file.segments}),
        [ids[host] for host in sorted(present - with_rows)],
        list(joined((low, high + 1) for _, low, high in listened)),
        sorted((file.path, file.has_share) for file in spans),
    )


def _hearers(
    journal: tuple[str, str], sessions: Sequence[JournalSession], clocks: Clocks, day: str
) -> Iterator[tuple[str, str, int, int, int, int]]:
    if not sessions:  # what it says that it has recorded is missing
        yield *journal, 0, _ENDLESS, *clocks.of((*journal, 0), day)
    for session, first, last in record_ranges(sessions):
        yield *journal, first, last, *clocks.of(_key(session), day)


def record_ranges(sessions: Sequence[JournalSession]) -> Iterator[tuple[JournalSession, int, int]]:
    """Divide the records of a journal among its sessions, which are in order: each session with its first and its last
    record."""
    for place, (session, following) in enumerate(zip_longest(sessions, sessions[1:])):
        last = _ENDLESS if following is None else following.first_rec_no - 1
        yield session, session.first_rec_no if place else 0, last


def _listened(
    day: str, of_journal: Mapping[tuple[str, str], Sequence[JournalSession]], clocks: Clocks
) -> Iterator[tuple[str, int, int]]:
    """When hosts were listening, on the common clock, both ends included."""
    start = start_of(day)
    for (host, _), sessions in of_journal.items():
        for session in sessions:
            clock = clocks.of(_key(session), day)
            by = clock.shift + clock.ahead
            if session.end_us - by >= start - DAY and session.start_us - by < start + 2 * DAY:
                yield host, session.start_us - by, session.end_us - by


def _intervals(listened: Iterable[tuple[int, int, int]], low: int, high: int) -> Iterator[tuple[int, list[int]]]:
    """From when on which hosts were listening, within a window."""
    changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for host, first, last in listened:
        begins, ends = max(first, low), min(last + 1, high)
        if begins < ends:
            changes[begins].append((host, 1))
            changes[ends].append((host, -1))
    counts: dict[int, int] = defaultdict(int)
    for moment in sorted(changes):
        for host, step in changes[moment]:
            counts[host] += step
        yield moment, sorted(host for host, count in counts.items() if count)


def joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans in order, those that touch as one."""
    current: tuple[int, int] | None = None
    for low, high in sorted(spans):
        if current is not None and low <= current[1]:
            current = current[0], max(current[1], high)
            continue
        if current is not None:
            yield current
        current = low, high
    if current is not None:
        yield current
