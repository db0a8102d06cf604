"""Files of a journal that cannot be used. Each costs its own records: no session covers their time, so nothing is lost.

A file is damaged if it cannot be read, is none that a recorder writes, or lies elsewhere than its records belong. What
is known of it is kept with the tables, so that it is looked at again only if its size changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa

from bccnd.pipeline.inputs.journal_files import Input
from bccnd.pipeline.records.task_records import DAY, date_of


class DamagedFile(NamedTuple):
    """A row of `delta.DAMAGED`: the path below the journal, its size, why it cannot be used, and the time that its
    records can be of (microseconds; the last one belongs to it). The host is empty for a file that is none of a
    journal."""

    path: str
    size: int
    why: str
    host: str = ""
    journal_id: str = ""
    low: int = 0
    high: int = -1


_TEXTS: Final = ("path", "why", "host", "journal_id")
COLUMNS: Final = pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in DamagedFile._fields])


def to_table(files: Iterable[DamagedFile]) -> pa.Table:
    return pa.Table.from_pylist([file._asdict() for file in sorted(set(files))], COLUMNS)


def from_table(table: pa.Table) -> list[DamagedFile]:
    return [DamagedFile(*row.values()) for row in table.select(COLUMNS.names).to_pylist()]


def find_damaged(
    inputs: Iterable[Input], problems: Mapping[str, str], spans: Mapping[str, tuple[int, int]]
) -> Iterator[DamagedFile]:
    """Those of some files that have a problem, by path. The records of one are of its day, behind those of the file
    before it and before those of the next one; ``spans`` has the times of the files that are usable."""
    for (_, day), group in groupby(inputs, key=lambda file: (file.name.journal, file.name.day)):
        files = list(group)
        start, end = date_of(day) * DAY, date_of(day) * DAY + DAY - 1
        for place, (name, path, size) in enumerate(files):
            if path in problems:
                earlier = [spans[file.path][1] for file in files[:place] if file.path in spans]
                later = [spans[file.path][0] for file in files[place:] if file.path in spans]
                low, high = max([start, *earlier[-1:]]), min([end, *later[:1]])
                yield DamagedFile(path, size, problems[path], name.host, name.journal_id, low, high)
