"""Reads a journal's sessions together with the list of its files.

Invariant: no session covers a record that is in none of the files listed. A recorder finishes the files of a time
before it extends the session, and takes the time from the session before it removes them; so sessions are read before
files are listed, and looked at again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import pyarrow.parquet as pq

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.journal import schema as journal_schema
from bccnd.pipeline.inputs.damaged_files import DamagedFile
from bccnd.pipeline.inputs.input_history import Session, read_sessions
from bccnd.pipeline.inputs.journal_files import Journal, finished_files, look_into
from bccnd.pipeline.lake.place import Root, usable
from bccnd.pipeline.records.task_records import DAY, date_of


def open_journal(
    where: str, *, may_be_empty: bool = False, lost: Mapping[str, str] = MappingProxyType({})
) -> tuple[Journal, list[Session]]:
    """The files of a journal and its sessions; those of a host from behind the day that ``lost`` names, since retention
    is at work there. Files of sessions that cannot be used are among the journal's ``foreign``. Raises PipelineError as
    `Journal` does."""
    with usable(where):
        root = Root(where)
        before = finished_files(root, file_names.SESSIONS)
        early = _read(root, [path for path, *_ in before])
    journal = Journal(where, may_be_empty=may_be_empty, lost=lost)
    with usable(where):
        after = finished_files(root, file_names.SESSIONS)
        late = _read(root, [path for path, *_ in {*after} - {*before}])
    sizes = {path: size for path, size, _ in after}
    sessions: list[Session] = []
    for path, sessions_before in early.items():
        sessions_after = late.get(path, sessions_before)
        if path not in sizes:
            continue
        if isinstance(sessions_before, PipelineError):
            journal.foreign.append((path, sizes[path], sessions_before.detail))
        elif isinstance(sessions_after, PipelineError):
            journal.foreign.append((path, sizes[path], sessions_after.detail))
        elif sessions_after:
            sessions += clipped(sessions_before, min(session.start for session in sessions_after))
    ends = {host: (date_of(day) + 1) * DAY for host, day in lost.items()}
    return journal, [part for session in sessions for part in clipped([session], ends.get(session.host, session.start))]


def clipped(sessions: Iterable[Session], floor: int) -> list[Session]:
    """What sessions cover from a time on."""
    return [
        session._replace(start=max(session.start, floor))
        for session in sessions
        if session.start >= floor or session.end > floor
    ]


def _read(root: Root, paths: Iterable[str]) -> dict[str, list[Session] | PipelineError]:
    columns = journal_schema.SESSIONS

    def rows(file: pq.ParquetFile) -> list[Session]:
        return read_sessions(journal_schema.conform(file.read(), columns))

    return look_into(root, paths, columns, rows)


def without_damaged(sessions: Iterable[Session], files: Iterable[DamagedFile]) -> list[Session]:
    """Sessions without the times of damaged files."""
    left = list(sessions)
    for file in files:
        left = [part for session in left for part in _without(session, file)]
    return left


def _without(session: Session, file: DamagedFile) -> Iterator[Session]:
    apart = session[:2] != (file.host, file.journal_id) or file.high < session.start or session.end < file.low
    if apart:
        yield session
        return
    if session.start < file.low:
        yield session._replace(end=file.low - 1)
    if file.high < session.end:
        yield session._replace(start=file.high + 1)
