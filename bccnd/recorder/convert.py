"""Converts a log to Parquet files.

Invariant: the result depends on the log alone, so that a conversion can be repeated after any crash, with the same
files. Records are written before the session that covers them: a reader in between takes nothing under way for lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow.fs as pafs

from bccnd.core.formats.tap_record import Observation
from bccnd.journal import file_names
from bccnd.journal.damage import DamagedFileError
from bccnd.journal.record_writer import RecordWriter
from bccnd.journal.session_files import read_sessions, write_sessions
from bccnd.recorder import rows as packets
from bccnd.recorder.logfile import ALIVE, HEAD, PACKET, ROWS, End, LogReader
from bccnd.recorder.sessions import Head, bad_log, read_alive, read_head, without_removed

#: rows that are Python's at a time: some 6 MB
_CHUNK: Final = 8192


class Converted(NamedTuple):
    """The result of a conversion: ``end`` is how the log ended, ``saved`` the bytes of it that could be read."""

    rows: int
    files: int
    bytes: int
    end: End
    saved: int


def convert(path: str, filesystem: pafs.FileSystem, root: str) -> Converted:
    """Put all that a log holds into the journal: nothing of one without a beginning, because its writer died before.

    Raises JournalError: bad_log; OSError where the journal cannot be written or the log not be read.
    """
    with open(path, "rb", buffering=1 << 20) as file:
        reader = LogReader(file)
        records = iter(reader)
        kind, content = next(records, (b"", b""))
        if not kind and reader.end != "damaged":
            return Converted(0, 0, 0, "torn", 0)
        if kind != HEAD:
            raise bad_log()
        head = read_head(content)
        if not file_names.is_host(head.host) or not head.journal or "/" in head.journal:
            raise bad_log()
        content_of_log = _Content(filesystem, root, head)
        end: End | None = None
        for kind, content in records:
            try:
                content_of_log.take(kind, content)
            except ValueError:  # its checksum is right and it is none of ours
                end = "damaged"
                break
        written = content_of_log.finish()
        update_sessions(filesystem, root, head)
        rows = written.number - head.first
        return Converted(rows, len(written.paths), written.bytes, end or reader.end, reader.good)


class _Content:
    """The content of one log, put into files."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, head: Head) -> None:
        self._files = RecordWriter(filesystem, root, head.host, head.journal, head.first)
        self._session = head.sessions[-1] if head.sessions else None
        self._rows: list[Observation] = []

    def take(self, kind: bytes, content: bytes) -> None:
        """Raises ValueError for a record that is none."""
        if kind == PACKET:
            observations = packets.observations(content)
            if not observations and self._session is not None:
                self._session.tap_gaps += packets.gap_in(content)
            self._rows += observations
        elif kind == ROWS:
            self._rows += packets.unpack(content)
        elif kind == ALIVE and self._session is not None:
            self._session.extend(*read_alive(content))
        else:
            raise ValueError("no kind of record")
        if len(self._rows) >= _CHUNK:
            self._put()

    def _put(self) -> None:
        self._files.add(self._rows)
        self._rows = []
        if self._session is not None:
            self._session.last = self._files.number - 1

    def finish(self) -> RecordWriter:
        self._put()
        self._files.finish()
        return self._files


def update_sessions(filesystem: pafs.FileSystem, root: str, head: Head) -> None:
    """Write the sessions of a journal, without those that retention has removed. Raises OSError."""
    try:
        written = read_sessions(filesystem, root, head.host, head.journal)
    except DamagedFileError:
        written = []
    if written and head.sessions and written[-1].last > head.sessions[-1].last:
        return  # a later log of this journal has been converted already
    sessions = without_removed(head.sessions, written)
    if sessions and sessions != written:
        write_sessions(filesystem, root, head.host, head.journal, head.version, sessions)
