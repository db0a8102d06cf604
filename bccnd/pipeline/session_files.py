"""Reads a journal's sessions together with the list of its files.

Invariant: no session covers a record that is in none of the files listed. A recorder finishes the files of a time
before it extends the session, and takes the time from the session before it removes them; so sessions are read before
files are listed, and looked at again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from bccnd.journal import file_names
from bccnd.journal import schema as journal_schema
from bccnd.pipeline.input_history import Session, read_sessions
from bccnd.pipeline.journal_files import Journal, finished_files, look_into
from bccnd.pipeline.lake.place import Root, usable


def open_journal(where: str, *, may_be_empty: bool = False) -> tuple[Journal, list[Session]]:
    """The files of a journal and its sessions. Raises PipelineError as `Journal` does, and: misplaced."""
    with usable(where):
        root = Root(where)
        before = finished_files(root, file_names.SESSIONS)
        early = _read(root, [path for path, *_ in before])
    journal = Journal(where, may_be_empty=may_be_empty)
    with usable(where):
        after = finished_files(root, file_names.SESSIONS)
        late = _read(root, [path for path, *_ in {*after} - {*before}])
    there = {path for path, *_ in after}
    sessions = []
    for path, found in early.items():
        floor = min((session.start for session in late.get(path, found)), default=None)
        if path in there and floor is not None:
            sessions += clipped(found, floor)
    return journal, sessions


def clipped(sessions: Iterable[Session], floor: int) -> list[Session]:
    """What sessions cover from a time on."""
    return [
        session._replace(start=max(session.start, floor))
        for session in sessions
        if session.start >= floor or session.end > floor
    ]


def _read(root: Root, paths: Iterable[str]) -> dict[str, list[Session]]:
    columns = journal_schema.SESSIONS

    def rows(file: pq.ParquetFile) -> list[Session]:
        table = file.read()
        for column in columns:
            # files of earlier versions lack it
            if column.name not in table.column_names:
                table = table.append_column(column, pa.nulls(table.num_rows, column.type))
        return read_sessions(table.select(columns.names).cast(columns))

    return look_into(root, paths, columns, rows)
