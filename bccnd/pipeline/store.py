"""The tables below a folder or URI, and how a run puts new partitions in the place of old ones.

Invariant: a run that fails or is killed leaves every table as it was, or the next run finishes it; one run has the
folder to itself. ``<table>/day=<YYYY-MM-DD>/*.parquet`` are the tables, ``_state/<name>/day=<YYYY-MM-DD>/*.parquet`` is
what runs keep for later ones. Readers of Parquet folders ignore names that begin with ``_``.

On a local disk a run writes below ``_new/<run>``, then the list of its moves, then exchanges folders: readers see of
each partition the old or the new one. Elsewhere nothing is renamed: files have the name of their run, and
``_manifest.json`` lists the files of the last whole run. Readers go by it (`contents`). A run deletes what is not in
it, once before its own work and once after it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bccnd.errors import PipelineError
from bccnd.pipeline import parquet
from bccnd.pipeline.store_files import Root, usable
from bccnd.pipeline.store_lock import locked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE: Final = "_state"
NEW: Final = "_new"
MANIFEST: Final = "_manifest.json"
#: the version of the columns of tables and states, and the file that names it
FORMAT: Final = "2"
FORMAT_FILE: Final = f"{STATE}/format"
#: in the folder of a run: its list of moves, and what it has moved away
_MOVES: Final = "moves"
_OLD: Final = "old"

_FILE: Final = re.compile(r"((?:_state/)?[^/._][^/]*)/day=[^/]+/([^/._][^/]*\.parquet)")
#: a file that counts only where a manifest lists it
_OF_A_RUN: Final = re.compile(r"part-[0-9a-f]{16}-.*")

#: flags of renameat2: relative paths begin in the current folder; exchange two names
_HERE, _EXCHANGE = -100, 2

Contents = dict[str, list[str]]
Days = Mapping[str, set[str]]


def contents(where: str) -> Contents:
    """The files of every table of the last whole run, below ``where``. Raises PipelineError: no_place."""
    with usable(where):
        return _contents(Root(where))


def _contents(root: Root) -> Contents:
    manifest = root.text(MANIFEST)
    if manifest is not None:
        return dict(json.loads(manifest)["files"])
    found: Contents = {}
    for path, table, name in _files(root):
        if not _OF_A_RUN.fullmatch(name):
            found.setdefault(table, []).append(path)
    return found


def _files(root: Root) -> list[tuple[str, str, str]]:
    """All files of tables and states: path, table, name."""
    found = ((path, _FILE.fullmatch(path)) for path, _ in root.files())
    return [(path, match[1], match[2]) for path, match in found if match]


class Store:
    """The tables below a folder, open for one run. Use `opened`. Several threads may write tables at the same time."""

    def __init__(self, spark: SparkSession, root: Root, run: str, check_lock: Callable[[], None]) -> None:
        self._spark = spark
        self._root = root
        self._run = run
        self._check_lock = check_lock
        # a copy of tables from elsewhere keeps its manifest
        self._by_manifest = not root.is_local or root.text(MANIFEST) is not None
        self._there = _contents(root)
        self._written: dict[str, list[parquet.Written]] = {}
        self._mutex = threading.Lock()
        #: rows that this run has written of each table
        self.rows: dict[str, int] = {}

    def days(self, table: str) -> set[str]:
        """The days of which a table has rows."""
        return {parquet.day_of(path) for path in self._there.get(table, ())}

    def _paths(self, table: str, days: Collection[str] | None = None) -> list[str]:
        return [path for path in self._there.get(table, ()) if days is None or parquet.day_of(path) in days]

    def _frame(self, paths: Sequence[str], schema: StructType) -> DataFrame | None:
        return parquet.read(self._spark, self._root.where, paths, schema) if paths else None

    def read(self, table: str, schema: StructType) -> DataFrame | None:
        """A table as the last run has left it, ``day`` as a string behind its columns; None where there is none."""
        return self._frame(self._paths(table), schema)

    def load(self, table: str, columns: pa.Schema, days: Collection[str] | None = None) -> pa.Table:
        """A table as the last run has left it, or these days of it, read by this process."""
        return parquet.load(self._root.where, self._paths(table, days), columns)

    def write(self, table: str, frame: DataFrame) -> None:
        """Write partitions of a table, by the last column ``day``; they take their place with `commit`."""
        target = (table, f"part-{self._run}") if self._by_manifest else (f"{NEW}/{self._run}/{table}", "part")
        self._note(table, parquet.write(frame, self._root.where, *target))

    def empty(self, table: str) -> None:
        """Write nothing of a table: what it has of the days in question goes with `commit`."""
        self._note(table, [])

    def _note(self, table: str, written: list[parquet.Written]) -> None:
        with self._mutex:
            self._written.setdefault(table, []).extend(written)
            self.rows[table] = self.rows.get(table, 0) + sum(one.rows for one in written)

    def written(self, table: str, schema: StructType) -> DataFrame | None:
        """What this run has written of a table; None where that is nothing."""
        return self._frame([one.path for one in self._written.get(table, ())], schema)

    def commit(self, days: Collection[str] | None, whole: Collection[str] = ()) -> None:
        """Put all that was written in its place. Of the tables written, a partition of one of ``days`` (None: of any
        day) that was not written is removed: that day has no rows any more. Of tables in ``whole`` that goes for every
        day."""
        new = {table: {one.day for one in written} for table, written in self._written.items()}
        gone = {
            table: {day for day in self.days(table) - new[table] if days is None or table in whole or day in days}
            for table in new
        }
        put = self._list if self._by_manifest else self._exchange
        put(new, gone)

    def _list(self, new: Days, gone: Days) -> None:
        """Put the manifest with the days written of each table, and without those that are ``gone``."""
        listed = dict(self._there)
        for table, written in self._written.items():
            kept = self._paths(table, self.days(table) - new[table] - gone[table])
            listed[table] = sorted([*kept, *(one.path for one in written)])
        self._check_lock()
        self._root.put(MANIFEST, json.dumps({"format": FORMAT, "run": self._run, "files": listed}))
        self._there = listed

    def _exchange(self, new: Days, gone: Days) -> None:
        """Put the days written of each table in their places, and remove those that are ``gone``."""
        run = f"{self._root.path}/{NEW}/{self._run}"
        for table in new:
            os.makedirs(f"{self._root.path}/{table}", exist_ok=True)
        moves = [(path, os.stat(f"{run}/{path}").st_ino) for path in _folders(new)]
        self._root.put(f"{NEW}/{self._run}/{_MOVES}", json.dumps({"moves": moves, "gone": _folders(gone)}))
        _move_all(self._root.path, run)

    def clean(self) -> None:
        """Finish or remove what this run, or an earlier one that was killed, has left unfinished."""
        if self._by_manifest:
            listed = {path for found in self._there.values() for path in found}
            for path, _, _ in _files(self._root):
                if path not in listed:
                    self._root.remove(path)
            self._root.remove_folder(NEW)
            return
        for name in self._root.names(NEW):
            run = f"{self._root.path}/{NEW}/{name}"
            if os.path.exists(f"{run}/{_MOVES}"):
                _move_all(self._root.path, run)
            else:
                # a late task may still be writing
                shutil.rmtree(run, ignore_errors=True)
        self._there = _contents(self._root)


@contextmanager
def opened(spark: SparkSession, where: str) -> Iterator[Store]:
    """The tables below ``where``, for one run; what an earlier run has left unfinished is put right first.

    Raises PipelineError: no_place, in_use, old_tables.
    """
    run = secrets.token_hex(8)
    with usable(where):
        root = Root(where)
        if root.is_local:
            os.makedirs(root.path, exist_ok=True)
        with locked(root, run) as check_lock:
            _check_format(root)
            store = Store(spark, root, run, check_lock)
            store.clean()
            try:
                yield store
            finally:
                store.clean()


def _check_format(root: Root) -> None:
    """Mark an empty folder as one with tables of this version. Raises PipelineError: old_tables."""
    found = root.text(FORMAT_FILE)
    if found is None and not _contents(root):
        root.put(FORMAT_FILE, FORMAT)
    elif found is None or found.strip() != FORMAT:
        raise PipelineError(
            "old_tables",
            f"the tables in {root.where} were made by another version of bccn and have other columns",
            "make them anew in a new folder (bccn pipeline build JOURNAL --out FOLDER), or remove them",
        )


def exchange(one: str, other: str) -> bool:
    """Exchange two folders of a local disk in one step; False where its file system cannot. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), one)


def _folders(days: Days) -> list[str]:
    return sorted(f"{table}/{parquet.DAY}{day}" for table, found in days.items() for day in found)


def _move_all(root: str, run: str) -> None:
    """Apply the list of a run, as far as it has not been done."""
    with open(f"{run}/{_MOVES}", encoding="utf-8") as file:
        listed = json.load(file)
    for path, inode in listed["moves"]:
        new, place = f"{run}/{path}", f"{root}/{path}"
        if os.path.exists(new):
            if os.path.exists(place):
                # After an exchange the new partition is in its place, and the old one here.
                if os.stat(place).st_ino == inode or exchange(new, place):
                    continue
                _rename(place, f"{run}/{_OLD}/{path}")
            _rename(new, place)
    for path in listed["gone"]:
        if os.path.exists(f"{root}/{path}"):
            _rename(f"{root}/{path}", f"{run}/{_OLD}/{path}")
    # The list goes last: until then the next run repeats this.
    for name in os.listdir(run):
        if name != _MOVES:
            shutil.rmtree(f"{run}/{name}")
    shutil.rmtree(run)


def _rename(path: str, to: str) -> None:
    os.makedirs(os.path.dirname(to), exist_ok=True)
    os.rename(path, to)
