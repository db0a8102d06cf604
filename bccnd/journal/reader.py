"""Finds the files of a journal by their names, and reads rows from them. Nothing here needs Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.core.formats.uri import is_uri
from bccnd.errors import PipelineError
from bccnd.journal import file_names, files, schema
from bccnd.journal.capture_file import is_stream
from bccnd.journal.listing import list_files

#: rows that are read at once
BATCH: Final = 16_384
#: the file system and the folder of a journal
Place = tuple[pafs.FileSystem, str]


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


def open_place(where: str) -> Place:
    """Raises PipelineError: no_journal."""
    try:
        return files.open_root(where)
    except (OSError, pa.ArrowInvalid) as error:
        raise no_journal(where, str(error).splitlines()[0]) from error


def no_journal(where: str, why: str) -> PipelineError:
    return PipelineError("no_journal", f"no journal and no capture at {where}: {why}", "name the folder of a journal")


def find_captures(where: str) -> list[str]:
    """List the captures at ``where``, one or a folder of them; none if it is a journal. Raises PipelineError:
    no_journal."""
    is_file, is_journal, names = _look(where)
    if is_file or is_journal:
        return [where] if is_file else []
    paths = [f"{where.rstrip('/')}/{name}" for name in sorted(names) if not name.startswith(file_names.UNFINISHED)]
    if not paths:
        raise no_journal(where, "the folder has neither obs/ nor files")
    return paths


def _look(where: str) -> tuple[bool, bool, list[str]]:
    """Whether there is a file or a stream, whether there is a journal, and the names of the files in the folder. Raises
    PipelineError: no_journal."""
    if is_stream(where):
        return True, False, []
    if not is_uri(where):  # not by pyarrow, which takes only names in UTF-8
        if not os.path.isdir(where):
            if not os.path.isfile(where):
                raise no_journal(where, "there is nothing")
            return True, False, []
        with os.scandir(where) as entries:
            files_there = [entry.name for entry in entries if entry.is_file()]
        return False, os.path.isdir(os.path.join(where, file_names.OBS)), files_there
    filesystem, root = open_place(where)
    kind, obs = (info.type for info in filesystem.get_file_info([root, f"{root}/{file_names.OBS}"]))
    if kind == pafs.FileType.NotFound:
        raise no_journal(where, "there is nothing")
    if kind == pafs.FileType.File or obs == pafs.FileType.Directory:
        return kind == pafs.FileType.File, obs == pafs.FileType.Directory, []
    inside = files.entries(filesystem, pafs.FileSelector(root))
    return False, False, [info.base_name for info in inside if info.type == pafs.FileType.File]


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


@contextmanager
def _reading(file: file_names.ObsFile) -> Iterator[None]:
    """Turn errors into PipelineError: bad_file; but FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowInvalid) as error:
        detail = f"{file.path} does not belong to a journal: {str(error).splitlines()[0]}"
        raise PipelineError("bad_file", detail, "move it away, or copy it again") from error


def count_rows(place: Place, file: file_names.ObsFile) -> int:
    """Return the number of records in a file. Raises PipelineError: bad_file; FileNotFoundError."""
    with _reading(file):
        return int(pq.read_metadata(f"{place[1]}/{file.path}", filesystem=place[0]).num_rows)


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
    wanted = numbers if wanted is None else numbers & wanted
    with _reading(file), _open(place, file) as opened:
        fragment = ds.ParquetFileFormat().make_fragment(opened)
        if not fragment.physical_schema.equals(schema.OBS):
            raise pa.ArrowInvalid("its columns are not those of a journal")
        for batch in fragment.to_batches(columns=columns, filter=wanted, batch_size=BATCH, use_threads=False):
            if batch.num_rows:
                yield batch


def _open(place: Place, file: file_names.ObsFile) -> pa.NativeFile:
    filesystem, root = place
    try:
        return filesystem.open_input_file(f"{root}/{file.path}")
    except FileNotFoundError as error:
        raise pa.ArrowInvalid("it was removed meanwhile") from error
