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
#: what stands for null in a file: for numbers in files of older versions, whose sessions have all of their journal
_NULLS: Final = {"first_rec_no": 0, "last_rec_no": 2**62, "cause": ""}


def write_sessions(
    filesystem: pafs.FileSystem, root: str, host: str, journal: str, version: str, sessions: Iterable[RecorderSession]
) -> None:
    """Replace the sessions of a journal. Raises OSError."""
    shared = {"host": host, "journal_id": journal, "version": version}
    rows = [
        {name: None if value == _NULLS.get(name) else value for name, value in zip(_COLUMNS, fields, strict=True)}
        for fields in map(astuple, sessions)
    ]
    table = pa.Table.from_pylist([shared | row for row in rows], schema=schema.SESSIONS)
    files.write(filesystem, root, file_names.sessions_path(host, journal), table)


def read_sessions(filesystem: pafs.FileSystem, root: str, host: str, journal: str) -> list[RecorderSession]:
    """Read the sessions of a journal; none if it has no file of them. Raises DamagedFileError, OSError."""
    place = f"{root}/{file_names.sessions_path(host, journal)}"
    if filesystem.get_file_info(place).type != pafs.FileType.File:
        return []
    with detect_damage(), filesystem.open_input_file(place) as file:
        table = schema.conform(pq.read_table(file), schema.SESSIONS)
    columns = [table[name].fill_null(_NULLS[name]) if name in _NULLS else table[name] for name in _COLUMNS]
    columns[:2] = [column.cast(pa.int64()) for column in columns[:2]]
    return [RecorderSession(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
