"""Divides the records of one journal into files: each has a range of numbers of one day, without a hole.

Invariant: the division follows from the records and the first number alone, so that writing them again makes the same
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from bccnd.core.formats.tap_record import Observation
from bccnd.journal import file_names, files

#: bytes of records that are held until they are sorted and written; twice as many for a moment
_MAX_BYTES: Final = 64 << 20


class RecordWriter:
    """``number`` is that of the next record, ``paths`` the finished files below the root, ``bytes`` their size."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, host: str, journal: str, number: int) -> None:
        self.number = number
        self.paths: list[str] = []
        self.bytes = 0
        self._filesystem, self._root = filesystem, root
        self._name = file_names.ObsFile(host, "", journal, number)
        self._held: list[pa.Table] = []

    def add(self, rows: Sequence[Observation]) -> None:
        """Number some more records. Raises OSError."""
        host, _, journal, _ = self._name
        for day, run in groupby(rows, lambda row: file_names.day_of(row.ts)):
            piece = files.obs_table(host, journal, self.number, list(run))
            if day != self._name.day or sum(held.nbytes for held in self._held) + piece.nbytes > _MAX_BYTES:
                self.finish()
                self._name = file_names.ObsFile(host, day, journal, self.number)
            self._held.append(piece)
            self.number += piece.num_rows

    def finish(self) -> None:
        """Write the records that are held. Raises OSError."""
        if self._held:
            records, self._held = pa.concat_tables(self._held), []
            self.bytes += files.write_records(self._filesystem, self._root, self._name.path, records)
            self.paths.append(self._name.path)
