"""Where tables are kept, and how a run puts new ones in the place of old ones.

Law: who reads sees of each partition the old or the new one, never half of one; who runs has the folder to himself. A
run writes below ``_new/<run>``; when all of it is there, it writes down what is to be moved (``moves``), and moves it.
Killed before that list is there, it has changed nothing, and the next run throws away what it wrote; killed behind it,
the next run moves the rest. On a local disk a folder is exchanged with its successor in one step; elsewhere it takes
two renames, between which a partition is missing for an instant.

``<tables>/<table>/day=<YYYY-MM-DD>/*.parquet`` are the tables; ``_state/<name>/day=<YYYY-MM-DD>`` is what runs keep for
later ones: names that begin with ``_`` are left alone by who reads Parquet folders.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import io
import json
import os
import secrets
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from bccnd.errors import PipelineError

STATE: Final = "_state"
NEW: Final = "_new"
LOCK: Final = "_lock"
#: in the folder of a run: its list of moves; what it moves away where folders cannot be exchanged
_MOVES: Final = "moves"
_OLD: Final = "old"
_DAY: Final = "day="

#: renameat2: exchange two names; the folder that relative paths begin at
_EXCHANGE: Final = 2
_HERE: Final = -100


class Move(NamedTuple):
    """A partition to be put in its place, by its path below the tables; ``number`` is its inode on a local disk."""

    path: str
    number: int


@cache
def _renameat2() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def exchange(one: str, other: str) -> bool:
    """Exchange two folders of a local disk in one step; False where its file system cannot. Raises OSError."""
    call = _renameat2()
    if call is None:
        return False
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), one)


class Folder:
    """A folder on whatever file system Spark knows, through Spark's own eyes; paths are relative to it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - there is no other way to Hadoop's file systems
        try:
            self._root = self._jvm.org.apache.hadoop.fs.Path(root)
            self._fs = self._root.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
            self._root = self._fs.makeQualified(self._root)
        except Py4JJavaError as error:
            raise unusable(root, error) from error
        self.name = root
        self.uri = str(self._root.toString())
        self.local = str(self._root.toUri().getPath()) if self._fs.getUri().getScheme() == "file" else None

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{path}" if path else self.uri)

    def at(self, path: str) -> str:
        """The whole URI of a path."""
        return f"{self.uri}/{path}"

    def exists(self, path: str = "") -> bool:
        return bool(self._fs.exists(self._path(path)))

    def names(self, path: str = "") -> list[str]:
        """What is in a folder, sorted; nothing where there is none."""
        if not self.exists(path):
            return []
        return sorted(str(one.getPath().getName()) for one in self._fs.listStatus(self._path(path)))

    def make(self, path: str = "") -> None:
        self._fs.mkdirs(self._path(path))

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def move(self, path: str, to: str) -> None:
        """Rename; ``to`` must not be there."""
        self.make(to.rpartition("/")[0])
        if not self._fs.rename(self._path(path), self._path(to)):
            raise PipelineError("not_moved", f"{self.at(path)} cannot be renamed to {to}", "see what keeps it there")

    def write(self, path: str, text: str, *, anew: bool = False) -> bool:
        """Write a small file; with ``anew`` only where there is none."""
        try:
            stream = self._fs.create(self._path(path), not anew)
        except Py4JJavaError as error:
            if anew and "AlreadyExists" in str(error.java_exception.getClass().getName()):
                return False
            raise
        stream.write(bytearray(text.encode()))
        stream.close()
        return True

    def input(self, path: str) -> pa.NativeFile:
        """A file to be read in pieces. Raises FileNotFoundError; PipelineError: no_place."""
        return pa.PythonFile(_Input(self._fs, self._path(path), self.at(path)), mode="r")

    def text(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()


class _Input(io.RawIOBase):
    """A file of one of Hadoop's file systems, as Python reads files."""

    def __init__(self, filesystem: Any, path: Any, name: str) -> None:
        super().__init__()
        self._name = name
        self._position = 0
        with self._explained():
            self._size = int(filesystem.getFileStatus(path).getLen())
            self._stream = filesystem.open(path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            if "FileNotFound" in str(error.java_exception.getClass().getName()):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._name) from error
            raise unusable(self._name, error) from error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        wanted = self._size - self._position
        with self._explained():
            self._stream.seek(self._position)
            data = bytes(self._stream.readNBytes(max(0, wanted if size < 0 else min(size, wanted))))
        self._position += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            with suppress(Py4JJavaError):
                self._stream.close()
        super().close()


def unusable(root: str, error: Exception) -> PipelineError:
    """Why a folder cannot be used, in one line."""
    text = str(getattr(error, "java_exception", error)).splitlines()[0]
    return PipelineError("no_place", f"{root} cannot be used: {text}", "name a folder that this user may write to")


class Store:
    """The tables below a folder, open for one run. Use `opened`."""

    def __init__(self, spark: SparkSession, folder: Folder, run: str) -> None:
        self._spark = spark
        self.folder = folder
        self._run = f"{NEW}/{run}"
        self._written: list[str] = []

    # -- what is there

    def days(self, table: str) -> set[str]:
        """The days of which a table has a partition."""
        return {name.removeprefix(_DAY) for name in self.folder.names(table) if name.startswith(_DAY)}

    def read(self, table: str, schema: StructType | None = None) -> DataFrame | None:
        """A table as it stands, ``day`` as a string behind its columns; None where there is nothing of it."""
        return read(self._spark, self.folder, table, self.days(table), schema)

    # -- what is to be there

    def write(self, table: str, frame: DataFrame) -> None:
        """Write partitions of a table, by its column ``day``; they take their place with `commit`."""
        frame.write.partitionBy("day").option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(
            self.folder.at(f"{self._run}/{table}")
        )
        self._written.append(table)

    def empty(self, table: str) -> None:
        """Write nothing of a table: what it has of the days in question goes with `commit`."""
        self._written.append(table)

    def written(self, table: str) -> DataFrame | None:
        """What this run has written of a table."""
        days = {name.removeprefix(_DAY) for name in self.folder.names(f"{self._run}/{table}") if name.startswith(_DAY)}
        return read(self._spark, self.folder, f"{self._run}/{table}", days, None)

    def note(self, name: str, text: str) -> None:
        """Write a small text to be kept, with the same `commit`."""
        self.folder.write(f"{self._run}/{STATE}/{name}/day=all/note", text)
        self._written.append(f"{STATE}/{name}")

    def noted(self, name: str) -> str | None:
        """What was kept under a name."""
        path = f"{STATE}/{name}/day=all/note"
        return self.folder.text(path) if self.folder.exists(path) else None

    def commit(self, days: Collection[str] | None, whole: Collection[str] = ()) -> None:
        """Put all that was written in its place. Of the tables written, a partition of one of ``days`` (None: of any
        day) that was not written is taken away: that day has nothing any more. Of tables in ``whole`` that goes for
        every day."""
        moves, gone = [], []
        for table in dict.fromkeys(self._written):
            new = {name for name in self.folder.names(f"{self._run}/{table}") if name.startswith(_DAY)}
            moves += [f"{table}/{name}" for name in sorted(new)]
            old = {f"{_DAY}{day}" for day in self.days(table)}
            if days is not None and table not in whole:
                old &= {f"{_DAY}{day}" for day in days}
            gone += [f"{table}/{name}" for name in sorted(old - new)]
        for table in self._written:
            self.folder.make(table)
        listed = {"moves": [[path, self._number(path)] for path in moves], "gone": gone}
        self.folder.write(f"{self._run}/{_MOVES}.part", json.dumps(listed))
        self.folder.move(f"{self._run}/{_MOVES}.part", f"{self._run}/{_MOVES}")
        _move_all(self.folder, self._run)

    def _number(self, path: str) -> int:
        return os.stat(f"{self.folder.local}/{self._run}/{path}").st_ino if self.folder.local else 0


def read(
    spark: SparkSession, folder: Folder, table: str, days: Collection[str], schema: StructType | None
) -> DataFrame | None:
    """Partitions of a table of a folder; None where it has none."""
    if not days:
        return None
    reader = spark.read.option("basePath", folder.at(table))
    if schema is not None:
        reader = reader.schema(StructType(list(schema.fields)).add("day", "string"))
    else:
        # a day with more hosts has more columns
        reader = reader.option("mergeSchema", "true")
    return reader.parquet(*[folder.at(f"{table}/{_DAY}{day}") for day in sorted(days)])


@contextmanager
def opened(spark: SparkSession, root: str) -> Iterator[Store]:
    """The tables below ``root``, for one run; what an earlier one has left is put right first.

    Raises PipelineError: no_place, in_use.
    """
    folder = Folder(spark, root)
    try:
        folder.make()
        with _locked(folder):
            for name in folder.names(NEW):
                _finish(folder, f"{NEW}/{name}")
            run = secrets.token_hex(8)
            try:
                yield Store(spark, folder, run)
            finally:
                if not folder.exists(f"{NEW}/{run}/{_MOVES}"):
                    folder.remove(f"{NEW}/{run}")
    except Py4JJavaError as error:
        raise unusable(root, error) from error
    except OSError as error:
        raise unusable(root, error) from error


def _finish(folder: Folder, run: str) -> None:
    """What is left of a run that was killed: the rest of its moves, or nothing."""
    if folder.exists(f"{run}/{_MOVES}"):
        _move_all(folder, run)
    else:
        folder.remove(run)


def _move_all(folder: Folder, run: str) -> None:
    """Do what the list of a run says, as far as it has not been done."""
    listed = json.loads(folder.text(f"{run}/{_MOVES}"))
    for path, number in listed["moves"]:
        _move(folder, run, Move(path, number))
    for path in listed["gone"]:
        if folder.exists(path):
            folder.move(path, f"{run}/{_OLD}/{path}")
    # The list goes last: what is behind it has been done.
    for name in folder.names(run):
        if name != _MOVES:
            folder.remove(f"{run}/{name}")
    folder.remove(run)


def _move(folder: Folder, run: str, move: Move) -> None:
    new = f"{run}/{move.path}"
    if not folder.exists(new):
        return
    if folder.exists(move.path):
        if folder.local is not None:
            there = f"{folder.local}/{move.path}"
            if os.stat(there).st_ino == move.number or exchange(f"{folder.local}/{new}", there):
                return
        folder.move(move.path, f"{run}/{_OLD}/{move.path}")
    folder.move(new, move.path)


# -- one run at a time


@contextmanager
def _locked(folder: Folder) -> Iterator[None]:
    if folder.local is not None:
        with _locked_here(folder, folder.local):
            yield
        return
    mine = json.dumps(_myself())
    if not folder.write(LOCK, mine, anew=True):
        owner = json.loads(folder.text(LOCK) or "{}")
        if not _is_dead(owner):
            raise _in_use(folder, owner)
        folder.remove(LOCK)
        if not folder.write(LOCK, mine, anew=True):
            raise _in_use(folder, {})
    try:
        yield
    finally:
        folder.remove(LOCK)


@contextmanager
def _locked_here(folder: Folder, path: str) -> Iterator[None]:
    """On a local disk the kernel keeps the lock: it ends with its owner, however that ends."""
    descriptor = os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(folder, json.loads(os.pread(descriptor, 4096, 0) or b"{}")) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(_myself()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _myself() -> dict[str, str | int]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def _started(pid: int) -> int:
    """When a process began, in ticks since boot: with its pid it names a process. 0 where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _is_dead(owner: dict[str, Any]) -> bool:
    """Whether a lock was left by a process of this host that is no more; of others nobody here can say."""
    return owner.get("host") == socket.gethostname() and _started(int(owner["pid"])) != owner.get("started")


def _in_use(folder: Folder, owner: dict[str, Any]) -> PipelineError:
    who = f"process {owner['pid']} of {owner['host']}" if "pid" in owner else "another run"
    remedy = "wait for it to end"
    if folder.local is None:
        remedy += f"; if it is dead, remove {folder.at(LOCK)}"
    return PipelineError("in_use", f"{who} is at work on {folder.name}", remedy)


def tables(spark: SparkSession, root: str, table: str, schema: StructType | None = None) -> DataFrame | None:
    """A table for whoever only reads; None where there is nothing of it. Raises PipelineError: no_place."""
    folder = Folder(spark, root)
    try:
        days = {name.removeprefix(_DAY) for name in folder.names(table) if name.startswith(_DAY)}
        return read(spark, folder, table, days, schema)
    except (Py4JJavaError, PySparkException) as error:
        raise unusable(root, error) from error
