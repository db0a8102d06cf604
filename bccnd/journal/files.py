"""Rows -> finished files of a journal, on any file system that pyarrow knows.

Law: a file has its name only when it is whole: it is written beside its place and renamed into it. What is there
already is the same file, written before a crash, and is replaced by the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.core.observe import Observation
from bccnd.journal import layout, schema

_CODEC: Final = "zstd"
#: columns whose values repeat; the others would only fill dictionaries
_REPEATING: Final = ["host", "journal_id", "segment", "peer_ip", "verdict", "magic", "algo", "src", "chan", "form"]


def open_root(where: str) -> tuple[pafs.FileSystem, str]:
    """The file system and the folder that a path or a URI names. Raises pa.ArrowInvalid, OSError."""
    filesystem, path = pafs.FileSystem.from_uri(where) if "://" in where else (pafs.LocalFileSystem(), where)
    return filesystem, path.rstrip("/") or "/"


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
    folder, _, name = f"{root}/{path}".rpartition("/")
    filesystem.create_dir(folder, recursive=True)
    unfinished = f"{folder}/{layout.UNFINISHED}{name}"
    pq.write_table(table, unfinished, filesystem=filesystem, compression=_CODEC, use_dictionary=_REPEATING)
    filesystem.move(unfinished, f"{folder}/{name}")
