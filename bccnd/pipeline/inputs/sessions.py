"""Reads when the recorders of a journal were listening.

Invariant: no session covers a record that no file has, without `coverage` noticing it. A recorder finishes the files of
a time before it extends the session, so sessions are read before files are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bccnd.journal import file_names
from bccnd.journal import schema as journal_schema
from bccnd.journal.damage import DamagedFileError, detect_damage
from bccnd.pipeline.inputs.file_checks import check_columns, look_into
from bccnd.pipeline.inputs.journal_listing import ListedFile
from bccnd.pipeline.lake.place import Root

if TYPE_CHECKING:
    from bccnd.pipeline.inputs.verification import JournalFile


#: number of a record that a file of sessions does not tell
UNKNOWN: Final = -1


class JournalSession(NamedTuple):
    """A period in which a receiver was listening without a break: times in microseconds since 1970 by its own clock,
    and the numbers of its first and last record, which `number` adds where other writers leave them out."""

    host: str
    journal_id: str
    start_us: int
    end_us: int
    socket_drops: int = 0
    tap_gaps: int = 0
    version: str = ""
    cause: str | None = None
    first_rec_no: int = UNKNOWN
    last_rec_no: int = UNKNOWN

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
    columns[-2:] = [column.fill_null(UNKNOWN) for column in columns[-2:]]
    return list(map(JournalSession, *(column.to_pylist() for column in columns)))


def to_table(sessions: Iterable[JournalSession]) -> pa.Table:
    rows = [dict(zip(_NUMBERS.names, session, strict=True)) for session in sessions]
    return pa.Table.from_pylist(rows, _NUMBERS).cast(COLUMNS)


def read(root: Root, files: Iterable[ListedFile]) -> tuple[list[JournalSession], dict[ListedFile, str]]:
    """Read files of sessions: the sessions, and the files that cannot be used, with the reason."""
    listed = list(files)
    sessions: list[JournalSession] = []
    damaged: dict[ListedFile, str] = {}
    for file, result in zip(listed, look_into(listed, lambda file: _read_file(root, file.path)), strict=True):
        if isinstance(result, str):
            damaged[file] = result
        else:
            sessions += result or ()
    return sorted(sessions, key=in_time), damaged


def _read_file(root: Root, path: str) -> list[JournalSession]:
    with detect_damage(), pq.ParquetFile(f"{root.path}/{path}", filesystem=root.filesystem) as parquet:
        check_columns(parquet.schema_arrow, COLUMNS)
        sessions = from_table(journal_schema.conform(parquet.read(), COLUMNS))
    host = file_names.host_of_sessions(path)
    for session in sessions:
        if session.host != host:
            raise DamagedFileError(f"it is in the wrong folder: its column host has {session.host}")
    return sessions


def number(sessions: Iterable[JournalSession], files: Iterable[JournalFile]) -> list[JournalSession]:
    """The sessions, each with numbers; and one for each journal that has none, which lasts as long as its files."""
    of_journal = by_journal(sessions)
    files_of: dict[tuple[str, str], list[JournalFile]] = {}
    for file in sorted(files, key=attrgetter("first_rec")):
        files_of.setdefault(file.journal, []).append(file)
    for journal, own in files_of.items():
        low, high = min(file.low_us for file in own), max(file.high_us for file in own)
        of_journal.setdefault(journal, [JournalSession(*journal, low, high)])
    return [
        session
        for journal in sorted(of_journal)
        for session in _numbered(of_journal[journal], files_of.get(journal, ()))
    ]


def _numbered(sessions: Sequence[JournalSession], files: Sequence[JournalFile]) -> Iterator[JournalSession]:
    following = files[0].first_rec if files else 0
    for session in sessions:
        first = following if session.first_rec_no == UNKNOWN else session.first_rec_no
        begun = (file.end_rec - 1 for file in files if file.low_us <= session.end_us)
        last = max(begun, default=UNKNOWN) if session.last_rec_no == UNKNOWN else session.last_rec_no
        last = max(first - 1, last)
        following = last + 1
        yield session._replace(first_rec_no=first, last_rec_no=last)


def clipped(sessions: Iterable[JournalSession], start_us: int) -> Iterator[JournalSession]:
    """What sessions cover from a time on."""
    for session in sessions:
        if session.end_us > start_us:
            yield session._replace(start_us=max(session.start_us, start_us))
