"""Which receivers there were on a day, and when they were listening: the input of receivers.sql.

A receiver listens while one of its sessions lasts. Times are moved as the clock of the session demands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from bccnd.journal.file_names import DAY, start_of
from bccnd.pipeline.clocks import Clocks

if TYPE_CHECKING:
    from bccnd.pipeline.inputs.sessions import JournalSession
    from bccnd.pipeline.inputs.verification import JournalFile

#: microseconds; rows so near to midnight are looked at for both days: clocks differ by up to half a minute when they
#: have been corrected, and copies come late
MARGIN: Final = 90_000_000
_ENDLESS: Final = 2**62


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
) -> dict[str, list[Any]]:
    """The receivers of a day, from the files with rows of it or of its margins, with their times by the corrected
    clock, and the sessions of all journals: rows of the tables that receivers.sql begins with."""
    start, end = start_of(day), start_of(day) + DAY
    journals = sorted({file.journal for file in spans})
    return {
        "listened": list(_listened(day, of_journal, clocks)),
        "given_hearers": [row for journal in journals for row in _hearers(journal, of_journal, clocks, day)],
        "segments_of_hosts": sorted(
            {
                (file.host, segment if high >= start and low < end else None)
                for file, (low, high) in spans.items()
                for segment in file.segments
            },
            key=str,
        ),
        "files": sorted((file.path, file.has_share) for file in spans),
    }


def _hearers(
    journal: tuple[str, str], of_journal: Mapping[tuple[str, str], Sequence[JournalSession]], clocks: Clocks, day: str
) -> Iterator[tuple[str, str, int, int, int, int]]:
    """The sessions of a journal: their first and last record, by how much the times of these are moved back, and by how
    much they are ahead of the common clock then."""
    sessions = of_journal.get(journal, ())
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
