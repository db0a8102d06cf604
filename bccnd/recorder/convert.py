"""Converts a log to Parquet files.

Invariant: the result depends on the log alone, so that a conversion can be repeated after any crash, with the same
files. Records are written before the session that covers them: a reader in between takes nothing under way for lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow.fs as pafs

from bccnd.core.formats.tap_record import Observation
from bccnd.errors import JournalError
from bccnd.journal import file_names
from bccnd.journal.damage import DamagedFileError
from bccnd.journal.record_writer import RecordWriter
from bccnd.journal.session_files import read_sessions, write_sessions
from bccnd.recorder import rows as packets
from bccnd.recorder.logfile import ALIVE, HEAD, PACKET, ROWS, End, LogReader
from bccnd.recorder.sessions import Head, read_alive, read_head, without_removed

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
        records_of_log = _Records(filesystem, root, head)
        damaged = False
        for kind, content in records:
            try:
                records_of_log.take(kind, content)
            except ValueError:  # its checksum is right and it is none of ours
                damaged = True
                break
        records_of_log.finish()
        update_sessions(filesystem, root, head)
        end: End = "damaged" if damaged else reader.end
        written = records_of_log.files
        return Converted(head, written.number - head.first, len(written.paths), written.bytes, end, reader.good)


def _unreadable() -> Converted:
    raise JournalError("bad_log", "a log whose beginning cannot be read", "look at it, or remove it")


class _Records:
    """What the records of one log say, put into files."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, head: Head) -> None:
        self.files = RecordWriter(filesystem, root, head.host, head.journal, head.first)
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
        self.files.add(self._rows)
        self._rows = []
        if self._session is not None:
            self._session.last = self.files.number - 1

    def finish(self) -> None:
        self._put()
        self.files.finish()


def update_sessions(filesystem: pafs.FileSystem, root: str, head: Head) -> None:
    """Write the sessions of a journal, without those that retention has removed. Raises OSError."""
    try:
        written = read_sessions(filesystem, root, head.host, head.journal)
    except DamagedFileError:
        written = []
    if written and head.sessions and (written[-1].last or 0) > (head.sessions[-1].last or 0):
        return  # a later log of this journal has been converted already
    sessions = without_removed(head.sessions, written)
    if sessions and sessions != written:
        write_sessions(filesystem, root, head.host, head.journal, head.version, sessions)
