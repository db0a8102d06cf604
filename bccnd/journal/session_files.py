"""Reads and writes the sessions of a journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal import file_names, files, schema
from bccnd.journal.damage import detect_damage
from bccnd.journal.sessions import RecorderSession

#: the columns of the fields of a session, in their order
_COLUMNS: Final = ("start_ts", "end_ts", "socket_drops", "tap_gaps", "first_rec_no", "last_rec_no", "cause")


def write_sessions(
    filesystem: pafs.FileSystem, root: str, host: str, journal: str, version: str, sessions: Iterable[RecorderSession]
) -> None:
    """Replace the sessions of a journal. Raises OSError."""
    shared = {"host": host, "journal_id": journal, "version": version}
    rows = [shared | dict(zip(_COLUMNS, astuple(session), strict=True)) for session in sessions]
    table = pa.Table.from_pylist([row | {"cause": row["cause"] or None} for row in rows], schema=schema.SESSIONS)
    files.write(filesystem, root, file_names.sessions_path(host, journal), table)


def read_sessions(filesystem: pafs.FileSystem, root: str, host: str, journal: str) -> list[RecorderSession]:
    """Read the sessions of a journal; none if it has no file of them. Raises DamagedFileError, OSError."""
    place = f"{root}/{file_names.sessions_path(host, journal)}"
    if filesystem.get_file_info(place).type != pafs.FileType.File:
        return []
    with detect_damage(), filesystem.open_input_file(place) as file:
        table = schema.conform(pq.read_table(file), schema.SESSIONS)
    columns = [table[name] for name in _COLUMNS]
    numbers = [column.cast(pa.int64()).to_pylist() for column in columns[:-1]]
    causes = [cause or "" for cause in columns[-1].to_pylist()]
    return [RecorderSession(*row) for row in zip(*numbers, causes, strict=True)]
