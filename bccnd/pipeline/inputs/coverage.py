"""Finds out which records a journal lacks, and cuts sessions so that none covers them: they are not known, not lost.

The records of a journal are numbered without a hole, and sessions say which numbers they have. A number that is in no
usable file is missing, or in a damaged file. Of two files with the same records the second one is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from bccnd.pipeline.inputs.sessions import JournalSession
from bccnd.pipeline.inputs.verification import JournalFile


class Missing(NamedTuple):
    """Records of a journal that no file has, by their numbers; and the time that they can be of, by the clock of their
    host (microseconds; the last one belongs to it)."""

    host: str
    journal_id: str
    first_rec: int
    last_rec: int
    low_us: int
    high_us: int


class DamagedFile(NamedTuple):
    """A file of a journal that cannot be used: as it was listed, why, whose it is (empty for a file that is none of a
    journal), and, as in `Missing`, the time that its records can be of; none if another file has them."""

    path: str
    size: int
    mtime_ns: int
    tag: str
    why: str
    host: str = ""
    journal_id: str = ""
    first_rec: int = 0
    low_us: int = 0
    high_us: int = -1


_TEXTS: Final = ("path", "tag", "why", "host", "journal_id")


def _columns(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in names])


MISSING: Final = _columns(Missing._fields)
DAMAGED: Final = _columns(DamagedFile._fields)


_Row = TypeVar("_Row", JournalFile, DamagedFile, JournalSession, Missing, "Missing | DamagedFile")


class _Hole(NamedTuple):
    """Records from ``first`` up to ``end``, between two files, or before the first or behind the last one."""

    first: int
    end: int
    before: JournalFile | None
    behind: JournalFile | None


def repeated(files: Iterable[JournalFile]) -> dict[JournalFile, JournalFile]:
    """The files with records that another file has as well, which comes before it by its number, or has the name that
    a recorder gives it: with a number of twelve digits."""
    found: dict[JournalFile, JournalFile] = {}
    before: JournalFile | None = None
    for file in sorted(files, key=lambda file: (*file.journal, file.first_rec, -len(file.path))):
        if before is not None and before.journal == file.journal and file.first_rec < before.end_rec:
            found[file] = before
        else:
            before = file
    return found


class Before(NamedTuple):
    """What the last run knew of files that are not looked at any more: those of days before ``open_us``, by sessions
    and what was missing then."""

    sessions: Sequence[JournalSession] = ()
    missing: Sequence[Missing] = ()
    open_us: int = 0


#: all files are looked at
ALL: Final = Before()


def find_missing(
    files: Iterable[JournalFile],
    damaged: Sequence[DamagedFile],
    sessions: Sequence[JournalSession],
    before: Before = ALL,
) -> tuple[list[Missing], list[DamagedFile]]:
    """What the journals lack, and the damaged files with the time that their records can be of. ``sessions`` are those
    that the journal has now: what retention took is not missing."""
    missing: list[Missing] = []
    spans: dict[str, list[Missing]] = {}
    files_of, sessions_of = _by_journal(files), _by_journal(sessions)
    damaged_of = _by_journal(file for file in damaged if file.journal_id)
    sessions_before, missing_before = _by_journal(before.sessions), _by_journal(before.missing)
    for journal in sorted({*files_of, *damaged_of, *sessions_of}):
        bad = sorted(damaged_of.get(journal, []), key=lambda file: file.first_rec)
        own_sessions = sessions_of.get(journal, [])
        recent = [session for session in own_sessions if session.start_us >= before.open_us]
        known = _last(sessions_before.get(journal, [])) if before.open_us else None
        own_files = sorted(files_of.get(journal, []), key=lambda file: file.first_rec)
        # The first number that files must have, if those up to the last one known were there before.
        numbers = [*(file.first_rec for file in own_files[:1]), *(file.first_rec for file in bad[:1])]
        numbers += [session.first_rec_no for session in recent] + ([] if known is None else [known + 1])
        number = min(numbers or [session.first_rec_no for session in own_sessions])
        if before.open_us:
            missing += [row for row in missing_before.get(journal, []) if row.last_rec < number]
        for hole in _holes(number, own_files, bad, _last(own_sessions)):
            inside = [file for file in bad if hole.first <= file.first_rec < hole.end]
            starts = [hole.first, *(file.first_rec for file in inside), hole.end]
            for owner, (first, end) in zip([None, *inside], pairwise(starts), strict=True):
                rows = list(_in_sessions(journal, first, end, hole, own_sessions)) if first < end else []
                if owner is None:
                    missing += rows
                else:
                    spans[owner.path] = rows
    return missing, [_with_span(file, spans.get(file.path, ())) for file in damaged]


def _by_journal(rows: Iterable[_Row]) -> dict[tuple[str, str], list[_Row]]:
    found: dict[tuple[str, str], list[_Row]] = {}
    for row in rows:
        found.setdefault((row.host, row.journal_id), []).append(row)
    return found


def _last(sessions: Iterable[JournalSession]) -> int | None:
    """The last number that sessions have."""
    return max((session.last_rec_no for session in sessions), default=None)


def _holes(number: int, files: Sequence[JournalFile], bad: Sequence[DamagedFile], last: int | None) -> Iterator[_Hole]:
    """The holes of a journal from a number on; its files are sorted."""
    before = None
    for file in files:
        if number < file.first_rec:
            yield _Hole(number, file.first_rec, before, file)
        number, before = file.end_rec, file
    # How many records a damaged file has behind the last usable one is unknown.
    end = max([number, 0 if last is None else last + 1, *(file.first_rec + 1 for file in bad)])
    if number < end:
        yield _Hole(number, end, before, None)


def _in_sessions(
    journal: tuple[str, str], first: int, end: int, hole: _Hole, sessions: Sequence[JournalSession]
) -> Iterator[Missing]:
    """What of a hole each session has: the clock of a host can be set between two of them."""
    # By numbers, since the clock can have been set back.
    numbered = sorted(sessions, key=attrgetter("first_rec_no"))
    for session in numbered:
        start, last = session.first_rec_no, session.last_rec_no
        # The last session may go on behind the last number that it knows.
        stop = end if session is numbered[-1] else min(end, last + 1)
        if max(first, start) >= stop:
            continue
        low, high = session.start_us, session.end_us
        if hole.before is not None and hole.before.first_rec >= start:
            low = hole.before.high_us + 1
        if hole.behind is not None and hole.behind.end_rec - 1 <= last:
            high = hole.behind.low_us - 1
        yield Missing(*journal, max(first, start), stop - 1, min(low, high), max(low, high))


def _with_span(file: DamagedFile, rows: Sequence[Missing]) -> DamagedFile:
    if not rows:
        return file._replace(low_us=0, high_us=-1)
    return file._replace(low_us=min(row.low_us for row in rows), high_us=max(row.high_us for row in rows))


def covered(
    sessions: Iterable[JournalSession], missing: Iterable[Missing], damaged: Iterable[DamagedFile]
) -> list[JournalSession]:
    """The sessions without the time of missing and damaged records."""
    gaps: list[Missing | DamagedFile] = [*missing, *damaged]
    gaps_of = _by_journal(gap for gap in gaps if gap.low_us <= gap.high_us)
    left: list[JournalSession] = []
    for session in sessions:
        parts = [session]
        for gap in gaps_of.get(session.journal, ()):
            parts = [part for whole in parts for part in _without(whole, gap)]
        left += parts
    return left


def _without(session: JournalSession, gap: Missing | DamagedFile) -> Iterator[JournalSession]:
    if gap.high_us < session.start_us or session.end_us < gap.low_us:
        yield session
        return
    # In between there are no rows, so that any number there divides them.
    border = max(session.first_rec_no, gap.first_rec)
    if session.start_us < gap.low_us:
        yield session._replace(end_us=gap.low_us - 1, last_rec_no=border - 1)
    if gap.high_us < session.end_us:
        yield session._replace(start_us=gap.high_us + 1, first_rec_no=border)
