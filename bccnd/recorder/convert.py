"""Converts a log to Parquet files.

Invariant: the result depends on the log alone, so that a conversion can be repeated after any crash, with the same
files. Records are written before the session that covers them: a reader in between takes nothing under way for lost.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.core.formats.tap_record import Observation
from bccnd.errors import JournalError
from bccnd.journal import file_names, files, schema
from bccnd.recorder import rows as packets
from bccnd.recorder.logfile import ALIVE, HEAD, PACKET, ROWS, End, LogReader
from bccnd.recorder.sessions import Head, Session, clip_sessions, read_alive, read_head

#: rows that are Python's at a time: some 6 MB
_CHUNK: Final = 8192


@dataclass
class Converted:
    """The result of a conversion: ``end`` is how the log ended, ``saved`` the bytes of it that could be read."""

    head: Head
    rows: int
    files: int
    bytes: int
    end: End
    saved: int


def convert(path: str, filesystem: pafs.FileSystem, root: str) -> Converted | None:
    """Put all that a log holds into the journal; None for one that has no beginning, because its writer died before.

    Raises JournalError: bad_log; OSError where the journal cannot be written or the log not be read.
    """
    with open(path, "rb", buffering=1 << 20) as file:
        reader = LogReader(file)
        records = iter(reader)
        kind, content = next(records, (b"", b""))
        if kind != HEAD:
            if reader.end == "damaged" or kind:
                return _unreadable()
            return None
        head = read_head(content)
        if not file_names.is_host(head.host) or not head.journal or "/" in head.journal:
            return _unreadable()
        made = _Files(filesystem, root, head)
        damaged = False
        try:
            for kind, content in records:
                try:
                    made.take(kind, content)
                except ValueError:  # its checksum is right and it is none of ours
                    damaged = True
                    break
            made.finish()
        except BaseException:
            made.abandon()
            raise
        write_sessions(filesystem, root, head)
        end: End = "damaged" if damaged else reader.end
        return Converted(head, made.number - head.first, made.files, made.bytes, end, reader.good)


def _unreadable() -> Converted:
    raise JournalError("bad_log", "a log whose beginning cannot be read", "look at it, or remove it")


class _Files:
    """The files that the records of one log are put into: one for each run of records of one day."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, head: Head) -> None:
        self.number = head.first
        self.files = 0
        self.bytes = 0
        self._filesystem = filesystem
        self._root = root
        self._head = head
        self._rows: list[Observation] = []
        self._day = -1
        self._path = ""
        self._writer: files.Writer | None = None

    def take(self, kind: bytes, content: bytes) -> None:
        """Raises ValueError for a record that is none."""
        session = self._head.sessions[-1] if self._head.sessions else None
        if kind == PACKET:
            observations = packets.observations(content)
            if not observations and session is not None:
                session.tap_gaps += packets.gap_in(content)
            self._rows += observations
        elif kind == ROWS:
            self._rows += packets.unpack(content)
        elif kind == ALIVE and session is not None:
            session.extend(*read_alive(content))
        else:
            raise ValueError("no kind of record")
        if len(self._rows) >= _CHUNK:
            self._put()

    def _put(self) -> None:
        for day, run in groupby(self._rows, lambda row: row.ts // file_names.DAY):
            rows = list(run)
            if day != self._day or self._writer is None:
                self._end_file()
                name = file_names.ObsFile(
                    self._head.host, file_names.day_of(rows[0].ts), self._head.journal, self.number
                )
                self._day, self._path = day, name.path
                self._writer = files.Writer(self._filesystem, self._root, name.path, schema.OBS)
            self._writer.add(files.obs_table(self._head.host, self._head.journal, self.number, rows))
            self.number += len(rows)
        self._rows = []

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.finish()
            self._writer = None
            self.files += 1
            with contextlib.suppress(OSError):
                self.bytes += self._filesystem.get_file_info(f"{self._root}/{self._path}").size or 0

    def finish(self) -> None:
        self._put()
        self._end_file()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()


def write_sessions(filesystem: pafs.FileSystem, root: str, head: Head) -> None:
    """Write the sessions of a journal, without those that retention has removed."""
    path = file_names.sessions_path(head.host, head.journal)
    written = read_sessions(filesystem, f"{root}/{path}")
    if written and max(session.end for session in written) > max((session.end for session in head.sessions), default=0):
        return  # a later log of this journal has been converted already
    sessions = clip_sessions(head.sessions, min(session.start for session in written)) if written else head.sessions
    if sessions and sessions != written:
        replace_sessions(filesystem, root, head, sessions)


def replace_sessions(filesystem: pafs.FileSystem, root: str, head: Head, sessions: list[Session]) -> None:
    """Write these sessions of a journal. Raises OSError."""
    shared = {"host": head.host, "journal_id": head.journal, "version": head.version}
    rows = [
        {
            **shared,
            "start_ts": session.start,
            "end_ts": session.end,
            "socket_drops": session.socket_drops,
            "tap_gaps": session.tap_gaps,
            "cause": session.cause or None,
        }
        for session in sessions
    ]
    table = pa.Table.from_pylist(rows, schema=schema.SESSIONS)
    files.write(filesystem, root, file_names.sessions_path(head.host, head.journal), table)


def read_sessions(filesystem: pafs.FileSystem, place: str) -> list[Session]:
    """Read a file of sessions; none where it is not there or is none."""
    if filesystem.get_file_info(place).type != pafs.FileType.File:
        return []
    try:
        with files.detect_damage(), filesystem.open_input_file(place) as file:
            table = pq.read_table(file, schema=schema.SESSIONS)
            numbers = table.select(["start_ts", "end_ts", "socket_drops", "tap_gaps"]).columns
            rows = list(zip(*(column.cast(pa.int64()).to_pylist() for column in numbers), strict=True))
    except files.DamagedFileError:
        return []
    if any(None in row for row in rows):
        return []
    return [
        Session(start, end, drops, gaps, cause or "")
        for (start, end, drops, gaps), cause in zip(rows, table["cause"].to_pylist(), strict=True)
    ]
