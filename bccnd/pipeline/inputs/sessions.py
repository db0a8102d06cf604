"""Reads when the recorders of a journal were listening.

Invariant: no session covers a record that is in none of the files listed. A recorder finishes the files of a time
before it extends the session, and takes the time from the session before it removes them; so sessions are read before
files are listed, and looked at again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bccnd.journal import file_names
from bccnd.journal import schema as journal_schema
from bccnd.journal.damage import DamagedFileError, detect_damage
from bccnd.pipeline.inputs.file_checks import check_columns, look_into
from bccnd.pipeline.inputs.journal_listing import ListedFile
from bccnd.pipeline.lake.place import Root


class JournalSession(NamedTuple):
    """A period in which a receiver was listening without a break: times in microseconds since 1970 by its own clock,
    and the numbers of its first and last record, as far as they are known."""

    host: str
    journal_id: str
    start_us: int
    end_us: int
    socket_drops: int = 0
    tap_gaps: int = 0
    version: str = ""
    cause: str | None = None
    first_rec_no: int | None = None
    last_rec_no: int | None = None

    @property
    def journal(self) -> tuple[str, str]:
        return self.host, self.journal_id


#: the columns of sessions, by the fields of `JournalSession`
COLUMNS: Final = pa.schema(
    [journal_schema.SESSIONS.field(name.replace("_us", "_ts")) for name in JournalSession._fields]
)
_NUMBERS: Final = pa.schema(
    [pa.field(field.name, pa.int64()) if pa.types.is_timestamp(field.type) else field for field in COLUMNS]
)


def in_time(session: JournalSession) -> tuple[str, str, int, int]:
    """The order of sessions."""
    return session[:4]


def by_journal(sessions: Iterable[JournalSession]) -> dict[tuple[str, str], list[JournalSession]]:
    """The sessions of each journal, in their order."""
    found: dict[tuple[str, str], list[JournalSession]] = {}
    for session in sorted(sessions, key=in_time):
        found.setdefault(session.journal, []).append(session)
    return found


def from_table(table: pa.Table) -> list[JournalSession]:
    columns = table.select(COLUMNS.names).cast(COLUMNS).cast(_NUMBERS).columns
    return list(map(JournalSession, *(column.to_pylist() for column in columns)))


def to_table(sessions: Iterable[JournalSession]) -> pa.Table:
    rows = [dict(zip(_NUMBERS.names, session, strict=True)) for session in sessions]
    return pa.Table.from_pylist(rows, _NUMBERS).cast(COLUMNS)


#: what is known of files of sessions: those of a journal, or why a file cannot be used
Found = dict[ListedFile, list[JournalSession] | str]


def read(root: Root, files: Iterable[ListedFile]) -> Found:
    """Read files of sessions; one that is gone by now is left out."""
    listed = list(files)
    results = look_into(listed, lambda file: _read_file(root, file.path))
    return {file: result for file, result in zip(listed, results, strict=True) if result is not None}


def _read_file(root: Root, path: str) -> list[JournalSession]:
    with detect_damage(), pq.ParquetFile(f"{root.path}/{path}", filesystem=root.filesystem) as parquet:
        check_columns(parquet.schema_arrow, COLUMNS)
        sessions = from_table(journal_schema.conform(parquet.read(), COLUMNS))
    host = file_names.host_of_sessions(path)
    for session in sessions:
        if session.host != host:
            raise DamagedFileError(f"it is in the wrong folder: its column host has {session.host}")
    return sessions


def settled(
    before: Found, after: Mapping[str, ListedFile], changed: Found
) -> tuple[list[JournalSession], dict[ListedFile, str]]:
    """The sessions that were read ``before`` files were listed, without what retention took meanwhile; and the files
    that cannot be used, with the reason. ``after`` are all files of sessions by then, ``changed`` those with another
    content."""
    sessions: list[JournalSession] = []
    damaged: dict[ListedFile, str] = {}
    for file, early in before.items():
        now = after.get(file.path)
        if now is None:
            continue
        late = changed.get(now, early)
        if isinstance(early, str) or isinstance(late, str):
            damaged[now] = late if isinstance(late, str) else str(early)
        elif late:
            sessions += clipped(early, min(late, key=in_time))
    return sorted(sessions, key=in_time), damaged


def clipped(sessions: Iterable[JournalSession], first: JournalSession) -> Iterator[JournalSession]:
    """What sessions cover from a time and number on: those with which ``first`` begins."""
    floor, number = first.start_us, first.first_rec_no
    for session in sessions:
        if session.start_us >= floor:
            yield session
        elif session.end_us > floor:
            numbered = session.first_rec_no is not None and number is not None
            first_rec = max(session.first_rec_no, number) if numbered else session.first_rec_no  # type: ignore[type-var]
            yield session._replace(start_us=floor, first_rec_no=first_rec)
