"""What the last run has kept of the journal: what its tables were made of, and what it could not use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from bccnd.journal import file_names
from bccnd.pipeline import schema
from bccnd.pipeline.inputs import coverage, input_history, sessions
from bccnd.pipeline.inputs.coverage import DamagedFile, Missing
from bccnd.pipeline.inputs.input_history import Due, Used, find_due
from bccnd.pipeline.inputs.journal import Journal, Known
from bccnd.pipeline.inputs.journal_listing import NONE, FinalDays
from bccnd.pipeline.inputs.sessions import JournalSession
from bccnd.pipeline.inputs.verification import JournalFile
from bccnd.pipeline.lake.delta import DAMAGED, FILES, LATE, MISSING, SESSIONS, Lake
from bccnd.pipeline.lake.place import Root
from bccnd.pipeline.lake.table_changes import TableChanges

_LATE: Final = pa.schema([("path", pa.string())])
#: what is kept of the journal: its columns, and whether it is divided by days
KEPT: Final[Mapping[str, tuple[pa.Schema, bool]]] = {
    FILES: (input_history.COLUMNS, True),
    SESSIONS: (sessions.COLUMNS, False),
    DAMAGED: (coverage.DAMAGED, False),
    MISSING: (coverage.MISSING, False),
    LATE: (_LATE, False),
}
#: microseconds before the last build since when folders of final days are looked into: a run takes its time, and
#: clocks differ
_SLACK: Final = 86_400_000_000


@dataclass
class RecordedInputs(Known):
    """``days`` are those of the tables, ``files`` those that some of them were made of, as far as they were read;
    ``late`` are files that came after their day was final."""

    lake: Lake | None = None
    days: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    _of_days: dict[str, dict[str, Used]] = field(default_factory=dict)

    @classmethod
    def of(cls, lake: Lake) -> RecordedInputs:
        damaged, missing = (lake.load(name, KEPT[name][0]).to_pylist() for name in (DAMAGED, MISSING))
        return cls(
            lake=lake,
            days=lake.days(FILES),
            sessions=sessions.from_table(lake.load(SESSIONS, sessions.COLUMNS)),
            damaged=[DamagedFile(**row) for row in damaged],
            missing=[Missing(**row) for row in missing],
            late={*lake.load(LATE, _LATE)["path"].to_pylist()},
        )

    def final_days(self, first_open: str) -> FinalDays:
        """The days of which only names are looked at; rows of the last final one can be of the next day."""
        if self.lake is None or not first_open:
            return NONE
        since = (self.lake.build.finished - _SLACK) * 1000
        return FinalDays(min(self.days), file_names.day_of(file_names.start_of(first_open) - file_names.DAY), since)

    def day(self, day: str) -> Mapping[str, Used]:
        """The files that the tables of a day were made of, by path."""
        if day not in self._of_days:
            rows = []
            if self.lake is not None and day in self.days:
                rows = input_history.from_table(self.lake.load(FILES, input_history.COLUMNS, {day}))
            self._of_days[day] = {file.path: use for file, use in rows}
            self.files |= {file.listed: file for file, _ in rows}
        return self._of_days[day]

    def load(self, days: Iterable[str]) -> None:
        """Read what the tables of these days were made of."""
        for day in days:
            self.day(day)

    @property
    def newest_us(self) -> int:
        """The time of the newest record of the days that were read, 0 if there is none."""
        return max((use.to_us for of_day in self._of_days.values() for use in of_day.values()), default=0)

    def listening(self) -> list[JournalSession]:
        """The sessions that the last run went by."""
        return coverage.covered(self.sessions, self.missing, self.damaged)

    def clocks(self) -> pa.Table:
        """What was known of clocks."""
        columns = schema.ALL[schema.CLOCKS][0]
        return columns.empty_table() if self.lake is None else self.lake.load(schema.CLOCKS, columns)

    def state(self, table: str, days: Collection[str]) -> list[str]:
        """The files of a table of these days, below the tables."""
        files = () if self.lake is None else self.lake.files(table)
        return [f"{table}/{file.path}" for file in files if file.day in days]

    def has_all(self, found: Journal, known: Sequence[JournalSession], late: Collection[str], first_open: str) -> bool:
        """Whether the tables were made of just this."""
        if not all(self.files.get(file.listed) == file for file in found.files):
            return False
        uses = {use.listed: use for of_day in self._of_days.values() for use in of_day.values()}
        used = [uses[file.listed] for file in found.files]
        due = find_due(used, found.listed, self.day, self.days, first_open=first_open)
        return not (
            due.days
            or due.left
            or set(found.damaged) != set(self.damaged)
            or coverage.covered(known, found.missing, found.damaged) != self.listening()
            or {*late, *due.late} != self.late
        )

    def withdrawn(self, found: Journal) -> list[JournalFile]:
        """The files that are in the journal and cannot be used any more as they were."""
        usable_files = {file.listed for file in found.files}
        return [file for listed, file in self.files.items() if file.path in found.listed and listed not in usable_files]

    def still_late(self, root: Root, found: Journal, final: FinalDays) -> set[str]:
        """The files of final days that their tables do not have."""
        there = root.filesystem.get_file_info([f"{root.path}/{path}" for path in sorted(self.late)])
        remembered = [
            path for path, info in zip(sorted(self.late), there, strict=True) if info.type == pafs.FileType.File
        ]
        late = set()
        for path in {*found.final, *remembered}:
            name = file_names.read_path(path)
            if name is not None and final.has(name.day) and path not in self.day(name.day):
                late.add(path)
        return late

    def record(
        self, changes: TableChanges, found: Journal, known: Iterable[JournalSession], due: Due, computed: Iterable[str]
    ) -> None:
        """Keep what the tables of the ``computed`` days, and of those that were left, are made of now."""
        files = {file.path: file for file in (*self.files.values(), *found.files)}
        for day in computed:
            changes.put(FILES, input_history.to_table(files, due.made_of.get(day, {})), day)
        for day in due.left:
            # New files are new only once; those that are gone are the reason why the day is left.
            changes.put(FILES, input_history.to_table(files, {**self.day(day), **due.made_of[day]}), day)
        changes.put(SESSIONS, sessions.to_table(known))
        changes.put(DAMAGED, pa.Table.from_pylist([file._asdict() for file in found.damaged], coverage.DAMAGED))
        changes.put(MISSING, pa.Table.from_pylist([row._asdict() for row in found.missing], coverage.MISSING))
        changes.put(LATE, pa.table({"path": sorted(due.late)}, _LATE))
