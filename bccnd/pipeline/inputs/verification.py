"""Verifies files of a journal: each once, before anything is computed from it.

A file is damaged if it is not as it was written, has not the columns of a journal, or lies elsewhere than its records
belong: below another host it would make that host one that received everything. More columns, another order, or
missing columns that may be null are no damage.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bccnd.journal import checksums, file_names
from bccnd.journal import schema as journal_schema
from bccnd.journal.damage import DamagedFileError, detect_damage
from bccnd.pipeline.inputs.file_checks import check_columns, look_into
from bccnd.pipeline.inputs.journal_listing import ListedFile
from bccnd.pipeline.lake.place import Root


class JournalFile(NamedTuple):
    """A usable file with records: the path below the journal, the parts of its name, its rows (numbered from
    ``first_rec`` on), their first and last time by the clock of its host (microseconds since 1970), the segments (empty
    for null), what changes when it is written again, and whether it has these columns."""

    path: str
    host: str
    journal_id: str
    day: str
    first_rec: int
    rows: int
    low_us: int
    high_us: int
    segments: tuple[str, ...]
    size: int
    mtime_ns: int
    tag: str
    has_share: bool
    has_payload: bool

    @property
    def journal(self) -> tuple[str, str]:
        return self.host, self.journal_id

    @property
    def end_rec(self) -> int:
        """The number behind that of the last record."""
        return self.first_rec + self.rows

    @property
    def listed(self) -> ListedFile:
        return ListedFile(self.path, self.size, self.mtime_ns, self.tag)


def verify(root: Root, files: Iterable[ListedFile]) -> list[JournalFile | str | None]:
    """What is known of each file, or why it is damaged; None for one that is gone by now."""
    return look_into(files, partial(_verify_file, root))


def _verify_file(root: Root, file: ListedFile) -> JournalFile:
    """What is known of a file with records. Raises DamagedFileError, OSError."""
    name = file_names.read_path(file.path)
    if name is None:
        raise DamagedFileError("its name is not that of a recorder's file")
    place = f"{root.path}/{file.path}"
    checksums.verify(root.filesystem, place)
    with detect_damage(), pq.ParquetFile(place, filesystem=root.filesystem) as parquet:
        check_columns(parquet.schema_arrow, journal_schema.OBS)
        rows = parquet.metadata.num_rows
        if not rows:
            raise DamagedFileError("it has no records")
        low, high = (pa.scalar(time, pa.timestamp("us", "UTC")).value for time in _ends(parquet, "ts"))
        _check_place("host", _ends(parquet, "host"), (name.host, name.host))
        _check_place("journal_id", _ends(parquet, "journal_id"), (name.journal_id, name.journal_id))
        _check_place("ts", (file_names.day_of(low), file_names.day_of(high)), (name.day, name.day))
        _check_numbers(parquet.read(["rec_no"])["rec_no"], name.first)
        columns = parquet.schema_arrow.names
        segments: list[str | None] = [None]
        if "segment" in columns:
            segments = parquet.read(["segment"])["segment"].unique().to_pylist()
        return JournalFile(
            file.path,
            *name.journal,
            name.day,
            name.first,
            rows,
            low,
            high,
            tuple(sorted({segment or "" for segment in segments})),
            file.size,
            file.mtime_ns,
            file.tag,
            journal_schema.SHARE in columns,
            journal_schema.PAYLOAD in columns,
        )


def _check_place(column: str, found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    """Raises DamagedFileError."""
    if found != expected:
        shown = " to ".join(map(str, dict.fromkeys(found)))
        raise DamagedFileError(f"it is in the wrong folder: its column {column} has {shown}")


def _check_numbers(column: pa.ChunkedArray, first: int) -> None:
    """Check that the numbers are those from ``first`` on, each once. Raises DamagedFileError."""
    numbers = column.cast(pa.int64()).to_numpy() - first
    rows = len(numbers)
    there = np.zeros(rows, bool)
    inside = numbers[(numbers >= 0) & (numbers < rows)]
    there[inside] = True
    if not there.all():
        low, high = numbers.min() + first, numbers.max() + first
        raise DamagedFileError(f"its {rows} records from {first} on are numbered {low} to {high}, or some twice")


def _ends(parquet: pq.ParquetFile, column: str) -> tuple[Any, Any]:
    """The least and the greatest value of a column: from the footer, or, where it has none, from the rows. Raises
    DamagedFileError if a value is missing."""
    index = parquet.schema_arrow.get_field_index(column)
    groups = [parquet.metadata.row_group(number).column(index).statistics for number in range(parquet.num_row_groups)]
    # Statistics of long texts can be cut; those of a journal's names are not.
    if all(
        group is not None and group.has_min_max and group.has_null_count and not group.null_count for group in groups
    ):
        return min(group.min for group in groups), max(group.max for group in groups)
    values = parquet.read([column])[column]
    if values.null_count:
        raise DamagedFileError(f"its column {column} has nulls")
    low, high = pc.min_max(values.cast(journal_schema.OBS.field(column).type)).as_py().values()
    return low, high
