"""Reads the pipeline's tables in batches, restricted to a range of time.

Files of other days are not opened. A file that is not part of a table is reported with its path.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.pipeline.lake.delta import DAMAGED, SESSIONS, Lake
from bccnd.pipeline.lake.parquet import File
from bccnd.pipeline.lake.place import Root, usable
from bccnd.pipeline.report import formatting as fmt

#: the table without which there is nothing to report
NEEDED: Final = "link_loss"

#: table -> the columns that are read, with their kinds
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    table: dict(column.split() for column in columns.split(", "))
    for table, columns in {
        "receiver_sets": "set_id number, hosts names",
        "link_loss": "host text, src text, win time, expected number, any_seen number, seen number, "
        "lost_here number, lost_everywhere number, not_listening number, dup number, late number",
        "epochs": "src text, program text, first_ts time, last_ts time, first_key number, cause text, skipped number",
        "delivery": "set_id number, n number",
        "channel_loss": "chan text, win time, seen number, lost_here number, lost_everywhere number",
        "liveness": "host text, src text, from_ts time, to_ts time, kind text, basis text",
        "channel_traffic": "win time, chan text, src text, msgs number, bytes number, p99_len number",
        "integrity": "win time, host text, peer_ip text, claimed_src text, verdict text, n number, first_ts time, "
        "last_ts time",
        "skew": "host text, ref_host text, p05_us number, p50_us number, p95_us number, n number",
        SESSIONS: "host text, start_ts time, end_ts time, socket_drops number, tap_gaps number, version text",
        DAMAGED: "path text, why text",
    }.items()
}
#: times become microseconds
_TYPES: Final = {
    "text": pa.string(),
    "number": pa.int64(),
    "time": pa.timestamp("us", tz="UTC"),
    "names": pa.list_(pa.string()),
}
_BATCH: Final = 65_536
_REMEDY: Final = "make the tables again with: bccn pipeline build JOURNAL --out TABLES"


def midnight(day: str) -> int:
    return int(datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) * fmt.SECOND


@dataclass(frozen=True)
class TimeRange:
    """Microseconds since 1970, without the end; None: no limit."""

    start: int | None = None
    end: int | None = None

    def has_day(self, day: str) -> bool:
        first = midnight(day)
        return (self.start is None or first + fmt.DAY > self.start) and (self.end is None or first < self.end)

    def select(self, rows: pa.Table, column: str) -> pa.Table:
        if self.start is not None:
            rows = rows.filter(pc.greater_equal(rows[column], self.start))
        return rows if self.end is None else rows.filter(pc.less(rows[column], self.end))


class Tables:
    """The tables of the last build below a folder or URI. Raises PipelineError: no_tables, no_place, foreign,
    renewed."""

    def __init__(self, where: str) -> None:
        self.where = where
        with usable(where):
            self._root = Root(where)
            exists = self._root.filesystem.get_file_info(self._root.path).type
            if exists != pafs.FileType.Directory:
                problem = "no such folder" if exists == pafs.FileType.NotFound else "it is not a folder"
                remedy = "name the output of bccn pipeline build, or a journal"
                raise PipelineError("no_tables", f"{where}: {problem}", remedy)
            below = self._root.names()
        self._lake = Lake(where)
        self.names = self._lake.tables
        self.is_journal = file_names.OBS in below and not self.names
        self._files: dict[str, list[File]] = {}

    def _files_of(self, table: str) -> list[File]:
        if table not in self._files:
            self._files[table] = self._lake.files(table)
        return self._files[table]

    def days(self, table: str) -> list[str]:
        """Return the days of which a table has files."""
        return sorted({file.day for file in self._files_of(table)})

    def rows(self, table: str, time: TimeRange, only: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a table within a range of time, or ``only`` some columns of them, in batches. Of tables
        that are by day, these are all rows of the days."""
        names = list(only or COLUMNS[table])
        by = next((name for name in ("win", "first_ts") if name in names), None)
        for path in self._paths(table, time):
            with self._file(table, path) as file:
                for batch in file.iter_batches(batch_size=_BATCH, columns=names, use_threads=False):
                    columns = [_converted(batch[name], COLUMNS[table][name]) for name in names]
                    rows = pa.table(columns, names=names)
                    yield time.select(rows, by) if by else rows

    def _paths(self, table: str, time: TimeRange) -> list[str]:
        return [f"{table}/{file.path}" for file in self._files_of(table) if not file.day or time.has_day(file.day)]

    @contextmanager
    def _file(self, table: str, path: str) -> Iterator[pq.ParquetFile]:
        whole = self._root.at(path)
        try:
            with pq.ParquetFile(f"{self._root.path}/{path}", filesystem=self._root.filesystem) as file:
                if missing := sorted(COLUMNS[table].keys() - set(file.schema_arrow.names)):
                    problem = f"{whole} does not belong to the table {table}: it lacks {missing[0]}"
                    raise PipelineError("foreign", problem, _REMEDY)
                yield file
        except FileNotFoundError as error:
            problem = f"{whole} was removed: the tables are being replaced"
            raise PipelineError("renewed", problem, "try again in a moment") from error
        except (pa.ArrowException, OSError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise PipelineError("foreign", f"{whole} cannot be read: {reason}", _REMEDY) from error


def _converted(column: pa.Array, kind: str) -> pa.Array:
    """Convert a column to the one type of its kind, whatever wrote it."""
    column = pc.cast(column, _TYPES[kind], safe=False)
    return pc.cast(column, pa.int64()) if kind == "time" else column
