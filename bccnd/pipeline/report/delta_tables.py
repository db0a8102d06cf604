"""Opens the pipeline's tables for queries, restricted to the days of a range of time: files of others stay closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.fs as pafs

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.lake.place import Root, usable
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.units import engine

#: the table without which there is nothing to report
NEEDED: Final = "link_loss"


@dataclass(frozen=True)
class TimeRange:
    """Microseconds since 1970, without the end; None: no limit."""

    start: int | None = None
    end: int | None = None

    def has_day(self, day: str) -> bool:
        first = file_names.start_of(day)
        return (self.start is None or first + fmt.DAY > self.start) and (self.end is None or first < self.end)


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

    def days(self, table: str) -> list[str]:
        """Return the days of which a table has files."""
        return sorted({file.day for file in self._lake.files(table)})

    def open(self, table: str, time: TimeRange, database: duckdb.DuckDBPyConnection) -> None:
        """Make a view of a table, by its name without folder, with all rows of the days that a range touches."""
        files = [file.path for file in self._lake.files(table) if not file.day or time.has_day(file.day)]
        columns = pa.schema([column for column in self._lake.columns(table) if column.name != "day"])
        name, paths = table.rpartition("/")[2], [f"{table}/{path}" for path in files]
        engine.read(database, name, self._root, paths, engine.types(columns))
