"""Rows -> finished files of a journal, on any file system that pyarrow knows.

Invariant: a file has its name only when it is whole: it is written beside its place and renamed into it; on a local
disk it is there to stay before it has its name. What is there already is the same file, written before a crash, and is
replaced by the same rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.core.formats.tap_record import Observation
from bccnd.core.formats.uri import check_folder, is_uri
from bccnd.journal import file_names, schema

_CODEC: Final = "zstd"
#: columns whose values repeat; the others would only fill dictionaries
_REPEATING: Final = ["host", "journal_id", "segment", "peer_ip", "verdict", "magic", "algo", "src", "chan", "form"]
#: rows of a row group: some 30 MB while it is put together, and enough for columns to be worth it
_GROUP: Final = 131_072


def open_root(where: str) -> tuple[pafs.FileSystem, str]:
    """The file system and the folder that a path or a URI names; ``s3a://`` is Hadoop's name for ``s3://``. Raises
    pa.ArrowInvalid, OSError."""
    check_folder(where)
    if not is_uri(where):
        return pafs.LocalFileSystem(), os.path.abspath(where)  # pyarrow takes a relative name with a colon for a URI
    filesystem, path = pafs.FileSystem.from_uri(where.replace("s3a://", "s3://", 1))
    return filesystem, path.rstrip("/") or "/"


def entries(filesystem: pafs.FileSystem, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
    """List a folder, without names that are not UTF-8: they are not of a journal or of tables. Raises OSError."""
    return [info for info in filesystem.get_file_info(selector) if _has_text_name(info)]


def _has_text_name(info: pafs.FileInfo) -> bool:
    try:
        return bool(info.path)
    except UnicodeDecodeError:
        return False


class DamagedFileError(Exception):
    """A file that is no Parquet file, or not a whole one."""


@contextlib.contextmanager
def detect_damage() -> Iterator[None]:
    """Raise DamagedFileError where pyarrow cannot make sense of a file, for which it raises OSError without an errno,
    too."""
    try:
        yield
    except pa.ArrowException as error:
        raise DamagedFileError from error
    except OSError as error:
        if error.errno is None:
            raise DamagedFileError from error
        raise


def obs_table(host: str, journal: str, first: int, rows: Sequence[Observation]) -> pa.Table:
    """Rows of one journal, numbered from ``first`` on, as a table."""
    fields = list(zip(*rows, strict=True)) or [()] * len(Observation._fields)
    count = len(rows)
    columns = [pa.repeat(pa.scalar(host), count), pa.repeat(pa.scalar(journal), count), range(first, first + count)]
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip([*columns, *fields], schema.OBS, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema.OBS)


def write(filesystem: pafs.FileSystem, root: str, path: str, table: pa.Table) -> None:
    """Put a table in its place below a journal's root, whole or not at all. Raises OSError."""
    with Writer(filesystem, root, path, table.schema) as writer:
        writer.add(table)


class Writer:
    """A file below a journal's root, written piece by piece; it has its name when the ``with`` ends well, and leaves
    nothing behind when it does not. Raises OSError."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, path: str, columns: pa.Schema) -> None:
        self._filesystem = filesystem
        folder, _, name = f"{root}/{path}".rpartition("/")
        self._place = f"{folder}/{name}"
        self._unfinished = f"{folder}/{file_names.UNFINISHED}{name}"
        filesystem.create_dir(folder, recursive=True)
        self._parquet = pq.ParquetWriter(
            self._unfinished, columns, filesystem=filesystem, compression=_CODEC, use_dictionary=_REPEATING
        )
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= _GROUP:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._parquet.write_table(pa.concat_tables(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows = [], 0

    def finish(self) -> None:
        """Give the file its name."""
        self._write()
        self._parquet.close()
        local = isinstance(self._filesystem, pafs.LocalFileSystem)
        if local:
            _settle(self._unfinished)
        self._filesystem.move(self._unfinished, self._place)
        if local:
            _settle(os.path.dirname(self._place))

    def abandon(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._parquet.close()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._unfinished)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is not None:
            self.abandon()
            return
        try:
            self.finish()
        except BaseException:
            self.abandon()
            raise


def _settle(path: str) -> None:
    """Have the kernel bring a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
