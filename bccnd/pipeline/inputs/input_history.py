"""What the incremental run remembers of records and sessions that retention has taken from a journal.

Invariant: retention never changes a table. A recorder removes its oldest files, and takes the time of what it removed
out of its sessions. The sessions that were known before are kept (`remember`), and a day is not computed again once
records that its tables were made of are gone (`InputHistory`): its tables stay as they are. A file is known by its path
below the journal, since a recorder writes each one once.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from bccnd.errors import PipelineError
from bccnd.journal import schema as journal_schema
from bccnd.pipeline.inputs.damaged_files import DamagedFile
from bccnd.pipeline.inputs.journal_files import MARGIN, Input, Journal
from bccnd.pipeline.lake.delta import STATE
from bccnd.pipeline.lake.table_store import Store
from bccnd.pipeline.records.task_records import DAY, beside, day_of

#: the state with what the tables of a day were made of: `Records`
FILES: Final = f"{STATE}/files"


class Records(NamedTuple):
    """The records of a file that the tables of ``day`` were made of: how many they are, and the times of the first and
    the last one in microseconds. A row of `FILES`."""

    path: str
    rows: int
    low: int
    high: int
    day: str


_TEXTS: Final = ("path", "day")
_RECORDS: Final = pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in Records._fields])
#: the columns of `FILES`, without ``day``
COLUMNS: Final = pa.schema(list(_RECORDS)[:-1])


class Session(NamedTuple):
    """A row of sessions; times in microseconds since 1970."""

    host: str
    journal_id: str
    start: int
    end: int
    socket_drops: int = 0
    tap_gaps: int = 0
    version: str = ""
    cause: str | None = None
    first_rec_no: int | None = None
    last_rec_no: int | None = None


#: the types of its fields, under the names of the columns of sessions
_SESSION: Final = pa.schema(
    [(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in journal_schema.SESSIONS]
)


def touched(spans: Iterable[tuple[int, int]], margin: datetime.timedelta = MARGIN) -> set[str]:
    """The days of rows from and up to these times, those within the margin of the next day counted there as well."""
    margin_us = margin // datetime.timedelta(microseconds=1)
    return {
        day_of(date) for low, high in spans for date in range((low - margin_us) // DAY, (high + margin_us) // DAY + 1)
    }


def remember(before: Iterable[Session], after: Iterable[Session]) -> list[Session]:
    """The sessions that a journal has now (``after``), and what retention has taken of those known before.

    Retention moves the first start of a journal forward, removes its first stretches or all of them. So what was known
    in front of the first start that is left is still true; behind it the journal is right.
    """
    now = _by_journal(after)
    for journal, remembered in _by_journal(before).items():
        listed = now.get(journal, [])
        if listed:
            first, *later = listed
            remembered = [session for session in remembered if session.start < first.start]
            start = min((session.start for session in remembered if session.end >= first.start), default=first.start)
            listed = [first._replace(start=start), *later]
            remembered = [session for session in remembered if session.end < first.start]
        now[journal] = [*remembered, *listed]
    return [session for journal in sorted(now) for session in now[journal]]


def _by_journal(sessions: Iterable[Session]) -> dict[tuple[str, str], list[Session]]:
    by_journal: dict[tuple[str, str], list[Session]] = {}
    for session in sorted(sessions):
        by_journal.setdefault((session.host, session.journal_id), []).append(session)
    return by_journal


def changed(before: Iterable[Session], after: Iterable[Session]) -> set[str]:
    """The days in which receivers were recording in only one of two sets of sessions."""
    old, new = ({session[:3]: session.end for session in sessions} for sessions in (before, after))
    spans = []
    for key in old.keys() | new.keys():
        start = key[2]
        low, high = sorted((old.get(key, start), new.get(key, start)))
        if low != high or key not in old or key not in new:
            spans.append((low, high))
    return touched(spans)


def of_days(files: Iterable[Records], days: Collection[str], margin: datetime.timedelta = MARGIN) -> list[Records]:
    """What is to be kept as `FILES` when these days were made of these files and a margin around the days; whatever
    ``day`` is in ``files``."""
    return [
        file._replace(day=day) for file in files for day in sorted(touched([(file.low, file.high)], margin) & set(days))
    ]


class _Comparison(NamedTuple):
    """``new`` are the records that the tables were not made of, of files of days with tables; of ``incomplete`` days
    records are gone; files of ``unusable_days`` cannot be read."""

    new: list[Records]
    incomplete: set[str]
    unusable_days: set[str]


def _compare(
    source: Journal, inputs: Sequence[Input], made_of: Sequence[Records], computed_days: Collection[str]
) -> _Comparison:
    """Compare the files of a journal with those that the tables were made of."""
    days = {file.path: file.name.day for file in inputs}
    known = {file.path for file in made_of}
    # Files of other days need not be looked into: these days are computed anyway, and the files touch no others.
    unknown = [path for path, day in days.items() if path not in known and day in computed_days]
    new, unusable_days = [], set()
    for path, ends in source.ends(unknown).items():
        if isinstance(ends, PipelineError):
            # The scan of its day finds out why it cannot be used.
            unusable_days.add(days[path])
        else:
            new.append(Records(path, *ends, days[path]))
    incomplete = {file.day for file in made_of if file.path not in days}
    return _Comparison(new, incomplete, unusable_days)


class InputHistory:
    """What the tables were made of, beside the files that a journal has now.

    Days before ``first_open`` are final. ``days`` are the others of files that can be used, ``new_days`` those that new
    files touch; ``left`` those that were asked for and cannot be computed again; ``damaged`` are the files known to be
    damaged that are still as they were, ``late`` those of final days that the tables do not have.
    """

    def __init__(
        self, kept: Store, source: Journal, known_damaged: Iterable[DamagedFile] = (), first_open: str = ""
    ) -> None:
        sizes = {file.path: file.size for file in source.files}
        self.damaged = [file for file in known_damaged if sizes.get(file.path) == file.size]
        damaged_paths = {file.path for file in self.damaged}
        self._first_open = first_open
        inputs = [file for file in source.files if file.path not in damaged_paths]
        self.days = {file.name.day for file in inputs if file.name.day >= first_open}
        self.left: set[str] = set()
        self._days = set(source.days)
        # Files of the last final day can touch the next one.
        first_known = beside(first_open)[0] if first_open else ""
        table = kept.load(FILES, COLUMNS, {day for day in self._days if day >= first_known})
        self._made_of = list(map(Records, *(column.to_pylist() for column in table.columns)))
        computed_days = {neighbour for day in kept.days(FILES) for neighbour in (day, *beside(day))}
        looked_at = [file for file in inputs if file.name.day >= first_known]
        found = _compare(source, looked_at, self._made_of, computed_days)
        self._new, self._incomplete = found.new, found.incomplete
        self.new_days = touched((file.low, file.high) for file in found.new) | found.unusable_days
        final = [file for file in inputs if file.name.day < first_open]
        self.late = sorted(_unknown(final, kept.load(FILES, COLUMNS, {file.name.day for file in final})))

    def complete(self, days: Iterable[str]) -> set[str]:
        """Those of some days that are not final, and of which no record is gone."""
        asked = {day for day in days if day >= self._first_open}
        gone = (asked - self._days) | (asked & self._incomplete)
        self.left |= gone
        return asked - gone

    def unused(self) -> list[Records]:
        """What `FILES` must have of days that are left, so that new files which came for them are new only once."""
        unused = of_days(self._new, self.left)
        days = {file.day for file in unused}
        return [*(file for file in self._made_of if file.day in days), *unused]


def _unknown(inputs: Sequence[Input], made_of: pa.Table) -> list[str]:
    """The paths of files that the tables of their own day were not made of."""
    known = pc.binary_join_element_wise(made_of["day"], made_of["path"], "/").combine_chunks()
    paths = pa.array([f"{file.name.day}/{file.path}" for file in inputs], pa.string())
    is_known = pc.is_in(paths, known).to_pylist()
    return [file.path for file, known_file in zip(inputs, is_known, strict=True) if not known_file]


def frame(spark: SparkSession, files: Sequence[Records]) -> DataFrame:
    """Rows of `FILES`, ``day`` last."""
    return spark.createDataFrame(pa.Table.from_pylist([file._asdict() for file in files], _RECORDS))


def read_sessions(sessions: pa.Table) -> list[Session]:
    """The rows of sessions."""
    columns = sessions.select(_SESSION.names).cast(_SESSION).columns
    return list(map(Session, *(column.to_pylist() for column in columns)))


def sessions_table(sessions: Iterable[Session]) -> pa.Table:
    """Rows of sessions, as a table."""
    rows = [dict(zip(_SESSION.names, session, strict=True)) for session in sessions]
    return pa.Table.from_pylist(rows, _SESSION).cast(journal_schema.SESSIONS)
