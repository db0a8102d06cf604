"""Parquet files of tables, read and written by this process on any file system that pyarrow supports.

The files of a day are in ``day=<YYYY-MM-DD>/``; the column ``day`` is in their path only. Paths are those below the
folder of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bccnd.pipeline.lake.place import Root

#: the column by which tables are divided, and the prefix of its folders
DAY: Final = "day"


class File(NamedTuple):
    """A file of a table: its path below the table's folder, the day of its rows, their number, and its size."""

    path: str
    day: str
    rows: int
    size: int


def day_of(path: str) -> str:
    """The day of a file's folder; empty for a file of a table that is not divided by days."""
    folder, _, _ = path.rpartition("/")
    return folder.rpartition(f"{DAY}=")[2] if folder else ""


def write(root: Root, table: str, name: str, rows: pa.Table, day: str = "") -> File:
    """Write rows of a table as a file, of a day if the table is divided by days."""
    path = f"{DAY}={day}/{name}" if day else name
    place = f"{root.path}/{table}/{path}"
    if root.is_local:
        root.filesystem.create_dir(place.rpartition("/")[0], recursive=True)
    pq.write_table(rows, place, filesystem=root.filesystem, compression="zstd", write_page_checksum=True)
    return File(path, day, rows.num_rows, root.filesystem.get_file_info(place).size)


def load(root: Root, table: str, paths: Iterable[str], columns: pa.Schema) -> pa.Table:
    """The rows of files with these columns. A column that a file does not have is null; ``day``, where files do not
    have it, is that of their folder."""
    folder = f"{root.path}/{table}"
    whole = [f"{folder}/{path}" for path in paths]
    options = {"filesystem": root.filesystem, "format": "parquet", "partitioning": "hive", "partition_base_dir": folder}
    return ds.dataset(whole, schema=columns, **options).to_table() if whole else columns.empty_table()
