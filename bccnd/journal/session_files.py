"""Reads and writes the sessions of a journal."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal import file_names, files, schema
from bccnd.journal.damage import detect_damage
from bccnd.journal.sessions import Session


def write_sessions(
    filesystem: pafs.FileSystem, root: str, host: str, journal: str, version: str, sessions: Iterable[Session]
) -> None:
    """Replace the sessions of a journal. Raises OSError."""
    rows = [
        {
            "host": host,
            "journal_id": journal,
            "start_ts": session.start,
            "end_ts": session.end,
            "socket_drops": session.socket_drops,
            "tap_gaps": session.tap_gaps,
            "version": version,
            "cause": session.cause or None,
            "first_rec_no": session.first,
            "last_rec_no": session.last,
        }
        for session in sessions
    ]
    table = pa.Table.from_pylist(rows, schema=schema.SESSIONS)
    files.write(filesystem, root, file_names.sessions_path(host, journal), table)


def read_sessions(filesystem: pafs.FileSystem, root: str, host: str, journal: str) -> list[Session]:
    """Read the sessions of a journal; none if it has no file of them. Raises DamagedFileError, OSError."""
    place = f"{root}/{file_names.sessions_path(host, journal)}"
    if filesystem.get_file_info(place).type != pafs.FileType.File:
        return []
    with detect_damage(), filesystem.open_input_file(place) as file:
        table = schema.conform(pq.read_table(file), schema.SESSIONS)
    for name in ("start_ts", "end_ts"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.int64()))
    return [
        Session(
            row["start_ts"],
            row["end_ts"],
            row["socket_drops"],
            row["tap_gaps"],
            row["first_rec_no"],
            row["last_rec_no"],
            row["cause"] or "",
        )
        for row in table.to_pylist()
    ]
