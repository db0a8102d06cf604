"""The journal as the pipeline reads it: which files there are, and whether each is what it should be.

Invariant: rows are taken from a file only if a recorder can have written it, it lies where its records belong, and it
holds records that no other file holds. Other files are left out and named; if records are in two files, the run ends
before anything is changed.
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.journal import schema as journal_schema
from bccnd.pipeline.lake.place import Root, usable

#: rows so near to midnight belong to the days on both sides of it: clocks differ, and copies come late
MARGIN: Final = datetime.timedelta(minutes=10)
#: files opened at once by this process: waiting for a disk or a store, not computing
_READERS: Final = 8
#: other names of a type of Arrow
_SAME: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
#: columns that a journal may leave out
_OPTIONAL: Final = (journal_schema.PAYLOAD, journal_schema.SHARE, "first_rec_no", "last_rec_no")
#: the reason of an error that is over when the journal is listed again, and how often that is tried
CHANGED: Final = "changed"
_TRIES: Final = 5

_Result = TypeVar("_Result")

#: what `gone` says, in whatever Spark says that a task has failed with
_GONE: Final = re.compile(rf"({file_names.OBS}/host=\S+) was removed while it was read")

_START: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Input(NamedTuple):
    """A file with records: the parts of its name, its path below the journal, and its size in bytes."""

    name: file_names.ObsFile
    path: str
    size: int


class Ends(NamedTuple):
    """How many rows a file has, and the times of the first and the last one in microseconds."""

    rows: int
    low: int
    high: int


class Journal:
    """The files of a journal when it was listed, sorted by host, journal and first record; those of a host only from
    behind the day that ``lost`` names. ``foreign`` are files with other names (their paths, sizes, and why).

    Raises PipelineError: no_place, no_journal, twice; empty_journal unless it ``may_be_empty``.
    """

    def __init__(
        self, where: str, *, may_be_empty: bool = False, lost: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        with usable(where):
            self._root = Root(where)
            self.where = self._root.where
            if file_names.OBS not in self._root.names():
                raise PipelineError(
                    "no_journal",
                    f"no journal at {where}: it has no folder {file_names.OBS}",
                    "name the folder that a recorder writes to (recorder.journal), or make one: bccn pipeline ingest",
                )
            files = []
            self.foreign: list[tuple[str, int, str]] = []
            for path, size, _ in finished_files(self._root, file_names.OBS):
                name = file_names.read_path(path)
                if name is None:
                    why = foreign(self._root.at(path), "its name is not that of a recorder's file").detail
                    self.foreign.append((path, size, why))
                elif name.day > lost.get(name.host, ""):
                    files.append(Input(name, path, size))
        key = operator.attrgetter("name.host", "name.journal_id", "name.first")
        self.files = sorted(files, key=key)
        for file, next_file in pairwise(self.files):
            if key(file) == key(next_file):
                raise self._twice(next_file.path, file.path)
        if not self.files and not may_be_empty:
            raise PipelineError(
                "empty_journal", f"the journal at {where} has no records yet", "check that the recorder runs"
            )
        self.days = sorted({file.name.day for file in self.files})

    def _twice(self, path: str, other_path: str) -> PipelineError:
        detail = f"{self._root.at(path)} holds the same records as {other_path}"
        return PipelineError("twice", detail, "move one of them out of the journal")

    def check_read(self, asked: Iterable[Input], rows: Mapping[str, int]) -> None:
        """Check what a scan has read: ``rows`` has the rows of each usable file by path. Raises PipelineError: twice if
        records are in two files."""
        ends: dict[tuple[str, str], tuple[int, str]] = {}
        for file, path, _ in asked:
            if path not in rows:
                continue
            end, other_path = ends.get((file.host, file.journal_id), (0, ""))
            if file.first < end:
                raise self._twice(path, other_path)
            ends[file.host, file.journal_id] = file.first + rows[path], path

    def ends(self, paths: Iterable[str]) -> dict[str, Ends | PipelineError]:
        """Rows and times of these files, from their footers, or why a file cannot be used; of files that are gone by
        now there is nothing."""
        return look_into(self._root, paths, journal_schema.OBS, read_ends)


def finished_files(root: Root, under: str) -> list[tuple[str, int, int]]:
    """Paths of finished files below a folder, their sizes, and when they were written."""
    return [
        (path, size, written)
        for path, size, written in root.files(under)
        if path.endswith(".parquet") and not any(part.startswith((".", "_")) for part in path.split("/"))
    ]


def look_into(
    root: Root, paths: Iterable[str], columns: pa.Schema, read: Callable[[pq.ParquetFile], _Result]
) -> dict[str, _Result | PipelineError]:
    """What ``read`` returns for each of these files, or why it cannot be used; nothing for one that has gone away."""

    def look(path: str) -> tuple[str, _Result | PipelineError] | None:
        try:
            with opened(root.filesystem, root.path, root.where, path, columns) as file:
                return path, read(file)
        except FileNotFoundError:
            return None
        except PipelineError as error:
            return path, error

    with ThreadPoolExecutor(_READERS) as pool:
        return dict(filter(None, pool.map(look, paths)))


@contextmanager
def opened(
    filesystem: pafs.FileSystem, root: str, where: str, path: str, columns: pa.Schema, **how: Any
) -> Iterator[pq.ParquetFile]:
    """A file of a journal that was checked. Raises FileNotFoundError, PipelineError: foreign_file, misplaced."""
    try:
        with filesystem.open_input_file(f"{root}/{path}") as source:
            file = pq.ParquetFile(source)
            check_file(file, where, path, columns)
            yield pq.ParquetFile(source, metadata=file.metadata, **how)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise foreign(f"{where}/{path}", f"it cannot be read: {str(error).splitlines()[0]}") from error


def check_file(file: pq.ParquetFile, where: str, path: str, columns: pa.Schema) -> None:
    """Check that a file has the columns of a journal and that its rows belong where it lies: below another host it
    would make that host one that received everything. Raises PipelineError: foreign_file, misplaced."""
    schema = file.schema_arrow
    for column in columns:
        index = schema.get_field_index(column.name)
        if index < 0 and column.name in _OPTIONAL:
            continue
        if index < 0:
            raise foreign(f"{where}/{path}", f"it has no column {column.name}")
        kind = schema.field(index).type
        if _SAME.get(kind, kind) != column.type:
            raise foreign(f"{where}/{path}", f"its column {column.name} is {kind}, not {column.type}")
    rows = file.metadata.num_rows
    if not rows and file_names.read_path(path) is not None:
        raise foreign(f"{where}/{path}", "it has no records")
    for column, expected in _expected(path, rows).items() if rows else ():
        values = tuple(f"{end:%Y-%m-%d}" if column == "ts" else end for end in _ends(file, column))
        if values != expected:
            shown = " to ".join(map(str, dict.fromkeys(values)))
            raise PipelineError(
                "misplaced",
                f"{where}/{path} is in the wrong folder: its column {column} has {shown}",
                "move it to the folder of its records, or out of the journal if that folder already has them",
            )


def _expected(path: str, rows: int) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest value that columns have by the name of their file."""
    name = file_names.read_path(path)
    if name is None:
        host = file_names.host_of_sessions(path)
        return {} if host is None else {"host": (host, host)}
    return {
        "host": (name.host, name.host),
        "journal_id": (name.journal_id, name.journal_id),
        "ts": (name.day, name.day),
        "rec_no": (name.first, name.first + rows - 1),
    }


def read_ends(file: pq.ParquetFile) -> Ends:
    """How many rows a file with records has, and the times of the first and the last one."""
    low, high = (microseconds(time) for time in _ends(file, "ts"))
    return Ends(file.metadata.num_rows, low, high)


def microseconds(time: datetime.datetime) -> int:
    """A time as microseconds since 1970."""
    return (time - _START) // datetime.timedelta(microseconds=1)


def _ends(file: pq.ParquetFile, column: str) -> tuple[Any, Any]:
    """The least and the greatest value of a column: from the footer, or, where it has none, from the rows."""
    index = file.schema_arrow.get_field_index(column)
    groups = [file.metadata.row_group(number).column(index).statistics for number in range(file.num_row_groups)]
    if groups and all(statistics is not None and statistics.has_min_max for statistics in groups):
        return min(statistics.min for statistics in groups), max(statistics.max for statistics in groups)
    low, high = pc.min_max(file.read(columns=[column]).column(0)).as_py().values()
    return low, high


def gone(path: str) -> PipelineError:
    """The error for a file that retention took while it was read: list the journal again."""
    return PipelineError(CHANGED, f"{path} was removed while it was read", "run it again")


def repeated(run: Callable[[], _Result], on_lost: Callable[[file_names.ObsFile], object] | None = None) -> _Result:
    """Run what lists and reads a journal; again if a file went away meanwhile, be it that a task of Spark has found
    that. ``on_lost`` gets the file. Raises PipelineError."""
    path = ""
    for _ in range(_TRIES):
        try:
            return run()
        except (PipelineError, PySparkException, Py4JError) as error:
            match = _GONE.search(str(getattr(error, "java_exception", error)))
            if match is None:
                raise
            path = match[1]
        file = file_names.read_path(path)
        if on_lost is not None and file is not None:
            on_lost(file)
    raise gone(path)


def foreign(path: str, why: str) -> PipelineError:
    """The error for a file that is not of a journal."""
    return PipelineError(
        "foreign_file", f"{path} does not belong to a journal: {why}", "move it out of the journal; existing files stay"
    )
