"""Rows -> finished files of a journal, on any file system that pyarrow knows.

Invariant: a file has its name only when it is whole: it is written beside its place and renamed into it; on a local
disk it is there to stay before it has its name. A file that exists already is the same one, written before a crash, and
is replaced by the same rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.core.formats.tap_record import Observation
from bccnd.core.formats.uri import check_folder, is_uri
from bccnd.journal import checksums, file_names, schema

_CODEC: Final = "zstd"
#: columns whose values repeat; the others would only fill dictionaries
_REPEATING: Final = [
    *("host", "journal_id", "segment", "peer_ip", "verdict", "magic", "algo", "src", "chan", "form"),
    schema.SHARE,
]
#: rows of a row group: enough for columns to be worth it, and few enough that a reader of one share skips most
_GROUP: Final = 65_536


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


def obs_table(host: str, journal: str, first: int, rows: Sequence[Observation]) -> pa.Table:
    """Rows of one journal, numbered from ``first`` on, as a table."""
    fields = list(zip(*rows, strict=True)) or [()] * len(Observation._fields)
    count = len(rows)
    values = [pa.repeat(pa.scalar(host), count), pa.repeat(pa.scalar(journal), count), range(first, first + count)]
    columns = {
        field.name: column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip([*values, *fields], schema.OBS, strict=False)
    }
    columns[schema.SHARE] = schema.shares_of(columns["src"], columns["host"])
    return pa.table(columns, schema.OBS)


def write_records(filesystem: pafs.FileSystem, root: str, path: str, records: pa.Table) -> int:
    """Write records to a file below a journal's root, sorted; return its bytes. Raises OSError."""
    order = pc.sort_indices(records.select(schema.ORDER), sort_keys=[(name, "ascending") for name in schema.ORDER])
    return write(filesystem, root, path, records.take(order))


def write(filesystem: pafs.FileSystem, root: str, path: str, table: pa.Table) -> int:
    """Write a table to a file below a journal's root, whole or not at all; return its bytes. Raises OSError."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, table.schema, compression=_CODEC, use_dictionary=_REPEATING, write_page_checksum=True
    ) as parquet:
        parquet.write_table(table, row_group_size=_GROUP)
        parquet.add_key_value_metadata(checksums.ANNOUNCED)
    pieces = checksums.seal(memoryview(sink.getvalue()))
    folder, _, name = f"{root}/{path}".rpartition("/")
    unfinished = f"{folder}/{file_names.UNFINISHED}{name}"
    local = isinstance(filesystem, pafs.LocalFileSystem)
    filesystem.create_dir(folder, recursive=True)
    try:
        with filesystem.open_output_stream(unfinished) as stream:
            for piece in pieces:
                stream.write(piece)
        if local:
            _settle(unfinished)
        filesystem.move(unfinished, f"{folder}/{name}")
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(unfinished)
        raise
    if local:
        _settle(folder)
    return sum(map(len, pieces))


def _settle(path: str) -> None:
    """Have the kernel bring a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
