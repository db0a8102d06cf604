"""Finds the files of a journal by their names, for Spark's reader and stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bccnd.errors import PipelineError
from bccnd.journal import file_names, reader
from bccnd.journal.listing import list_files
from bccnd.journal.reader import Place


@dataclass
class Wanted:
    """The rows to read: their hosts and journals (None: all), days (``YYYY-MM-DD``), and what else they fulfil."""

    hosts: frozenset[str] | None = None
    journals: frozenset[str] | None = None
    first_day: str = ""
    last_day: str = "9999-99-99"
    expression: pc.Expression = field(default_factory=lambda: pc.scalar(True))


class FoundFile(NamedTuple):
    """A file with records; ``end`` is the number of the first record in the file behind it, if there is one."""

    name: file_names.ObsFile
    end: int | None
    size: int
    written: float


def find(place: Place, wanted: Wanted) -> list[FoundFile]:
    """List the files that can have wanted rows, ordered by host, journal and number."""
    days = {"first_day": wanted.first_day, "last_day": wanted.last_day}
    listed = [
        file
        for file in list_files(*place, hosts=wanted.hosts, **days)
        if wanted.journals is None or file.name.journal_id in wanted.journals
    ]
    listed.sort(key=attrgetter("name.host", "name.journal_id", "name.first"))
    found_files = []
    for file, following in zip_longest(listed, listed[1:]):
        is_last = following is None or following.name.journal != file.name.journal
        found_files.append(FoundFile(file.name, None if is_last else following.name.first, file.size, file.written))
    return found_files


def count_rows(place: Place, file: file_names.ObsFile) -> int:
    """Return the number of records in a file. Raises PipelineError: bad_file; FileNotFoundError."""
    try:
        return int(pq.read_metadata(f"{place[1]}/{file.path}", filesystem=place[0]).num_rows)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowInvalid) as error:
        detail = f"{file.path} does not belong to a journal: {str(error).splitlines()[0]}"
        raise PipelineError("bad_file", detail, "move it away, or copy it again") from error


def rows(
    place: Place,
    file: file_names.ObsFile,
    first: int,
    end: int | None,
    columns: list[str],
    wanted: pc.Expression = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file from ``first`` on up to ``end``, some at a time. Raises PipelineError: bad_file."""
    numbers = pc.field("rec_no") >= first
    numbers = numbers if end is None else numbers & (pc.field("rec_no") < end)
    return reader.rows(place, file, columns, numbers if wanted is None else numbers & wanted)
