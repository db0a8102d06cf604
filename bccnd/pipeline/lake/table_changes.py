"""The changes of one run to the tables: collected while it goes on, and committed at its end."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa

from bccnd.errors import PipelineError
from bccnd.pipeline.lake import parquet
from bccnd.pipeline.lake.delta import Change, Lake
from bccnd.pipeline.lake.parquet import File
from bccnd.pipeline.lake.place import usable

#: the folder of what the tasks of a run keep for each other
WORK: Final = "_work"
#: seconds: a run that is the first in such a period removes old versions, and what runs left that were killed
_CLEANING: Final = 3600.0
_ABANDONED: Final = 86_400.0


class TableChanges:
    """What a run does to tables: ``tables`` are the columns of each, and whether it is divided by days. Use `opened`.
    ``run`` is the name of the run, which is part of the names of its files."""

    def __init__(self, lake: Lake, tables: Mapping[str, tuple[pa.Schema, bool]]) -> None:
        self.lake = lake
        self.run = secrets.token_hex(8)
        self._changes = {table: Change(*shape) for table, shape in tables.items()}
        self._committing = False

    def add(self, table: str, files: Iterable[File], replaced: Collection[str]) -> None:
        """Note files that are in their place already, and days whose files before go."""
        self._changes[table].written += files
        self._changes[table].gone |= set(replaced)

    def put(self, table: str, rows: pa.Table, day: str = "") -> None:
        """Write a table that is not divided by days, or a day of one, in place of what it was before."""
        files = []
        if rows.num_rows:
            with usable(self.lake.root.where):
                files.append(parquet.write(self.lake.root, table, f"part-{self.run}.parquet", rows, day))
        self.add(table, files, [day])

    def replace_all(self) -> None:
        """Have nothing stay of what was before."""
        for table, change in self._changes.items():
            change.gone |= self.lake.days(table)

    def commit(self, keep: float) -> None:
        """Put all changes in their place. What is replaced stays readable for ``keep`` seconds. Raises PipelineError:
        in_use."""
        self._committing = True
        before = self.lake.build.finished / 1e6
        self.lake.commit(self._changes, keep)
        if before // _CLEANING != time.time() // _CLEANING:
            self.lake.remove_old(keep)
            self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        with usable(self.lake.root.where):
            newest: dict[str, int] = {}
            for path, _, mtime_ns in self.lake.root.files(WORK):
                run = path.split("/")[1]
                newest[run] = max(newest.get(run, 0), mtime_ns)
            for run, mtime_ns in newest.items():
                if mtime_ns / 1e9 < time.time() - _ABANDONED:
                    self.lake.root.remove_folder(f"{WORK}/{run}")

    def close(self) -> None:
        """Remove what the run has written for itself and, unless it came to its commit, for the tables."""
        with suppress(PipelineError), usable(self.lake.root.where):
            self.lake.root.remove_folder(f"{WORK}/{self.run}")
            if self.lake.root.is_local:
                with suppress(OSError):  # another run has its own there
                    os.rmdir(f"{self.lake.root.path}/{WORK}")
            if not self._committing:
                for table in self._changes:
                    for path, *_ in self.lake.root.files(table):
                        if self.run in path:
                            self.lake.root.remove(path)


@contextmanager
def opened(where: str, tables: Mapping[str, tuple[pa.Schema, bool]]) -> Iterator[TableChanges]:
    """The tables below ``where``, for one run. Raises PipelineError: no_place, no_links, in_use, old_tables."""
    lake = Lake(where)
    lake.begin(tables)
    changes = TableChanges(lake, tables)
    try:
        yield changes
    finally:
        changes.close()
