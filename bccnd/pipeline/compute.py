"""Computes tables from the files of a journal: in which order, by which tasks.

Invariant: the tables of a day are the same whether it is computed alone or with others, and whatever the order in which
files came: they follow from its rows, those of a margin around it, and what is kept of the days before and behind it.

Days are surveyed first (how far clocks are apart, what reports say). Units, each a range of shares, then make the
tables of their sources, day by day. What spans shares is combined by day, and last what spans days.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from bccnd.core.tracking.tracker_limits import HORIZON
from bccnd.journal.file_names import DAY, day_of, start_of
from bccnd.pipeline import schema
from bccnd.pipeline.clocks import Clocks, Compared, references
from bccnd.pipeline.inputs.sessions import by_journal
from bccnd.pipeline.lake.place import Root
from bccnd.pipeline.receivers import MARGIN, find_receivers, joined, moved, record_ranges
from bccnd.pipeline.schema import TableFile
from bccnd.pipeline.units import engine as duck
from bccnd.pipeline.units import work
from bccnd.pipeline.units.survey import SAMPLES
from bccnd.pipeline.units.unit import SHARED
from bccnd.pipeline.units.work import Runner, Task

if TYPE_CHECKING:
    from bccnd.pipeline.inputs.sessions import JournalSession
    from bccnd.pipeline.inputs.verification import JournalFile

#: messages of a day by which clocks are compared, at most: enough for percentiles
SAMPLE_ROWS: Final = 100_000
#: rows that a unit should not exceed by much
UNIT_ROWS: Final = 16_000_000
#: rows below which a day is not divided
LEAST_ROWS: Final = 1_000_000
#: days of the time before which no clock was right
EARLIEST: Final = "2020-01-01"
#: shares of sources
SHARES: Final = 256
#: the files of a state table on days, below the tables
State = Callable[[str, Collection[str]], Sequence[str]]


@dataclass(frozen=True)
class Survey:
    """The clocks of sessions, as ``clocks`` (the whole content of the state table) tells; the sessions of each journal;
    the times of the first and the last row of each file by the corrected clock, None if that is unknown; the ``days``
    that were surveyed, by the hosts' own clocks, and the files ``written`` for these."""

    clocks: pa.Table
    corrections: Clocks
    sessions: Mapping[tuple[str, str], Sequence[JournalSession]]
    spans: Mapping[JournalFile, tuple[int, int] | None]
    days: Collection[str]
    written: Sequence[TableFile]


@dataclass
class Computed:
    """What was computed: the ``days``, the files ``written``, and the days of each table whose former files go."""

    days: list[str]
    written: dict[str, list[TableFile]]
    replaced: dict[str, set[str]]


class PipelineRun:
    """A run of the pipeline over a ``journal``: its ``runner``, and the tables' place. ``run`` is in the names of all
    files that it writes."""

    def __init__(self, runner: Runner, place: Root, run: str, journal: str, carry_days: int = 7) -> None:
        self.runner, self.place = runner, place
        self.task = Task(
            "",
            run,
            place.where,
            journal,
            (),
            memory_mb=runner.memory_mb,
            threads=runner.threads,
            carry_days=carry_days,
        )

    def put(self, name: str, content: Any) -> None:
        work.put(self.place, self.task, name, content)

    def tasks(self, tasks: Iterable[Task]) -> list[TableFile]:
        answers = self.runner.run([task.to_text() for task in tasks])
        return [TableFile(*file) for answer in answers for file in json.loads(answer)]

    def engine(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """An engine for what this process does itself."""
        return duck.opened(self.runner.memory_mb, self.runner.threads)


def survey(
    running: PipelineRun,
    files: Collection[JournalFile],
    sessions: Collection[JournalSession],
    days: Collection[str],
    known: pa.Table,
) -> Survey:
    """Compare the clocks of sessions over the files of these days, by the hosts' own clocks. ``known`` is the state
    table of clocks."""
    of_journal = by_journal(sessions)
    by_day: dict[str, list[JournalFile]] = defaultdict(list)
    for file in files:
        by_day[file.day].append(file)
    wanted = sorted(day for day in days if day in by_day)
    for day in wanted:
        of_day = by_day[day]
        parts = 1 << max(0, -(-sum(file.rows for file in of_day) // SAMPLE_ROWS) - 1).bit_length()
        running.put(f"survey-{day}", [[(file.path, file.has_payload) for file in sorted(of_day)], parts])
    written = running.tasks(replace(running.task, kind="survey", days=(day,)) for day in wanted)
    compared = [Compared(*row.values()) for row in known.to_pylist() if row["day"] not in wanted]
    for sample in written:
        if sample.table.endswith(SAMPLES):
            compared += _compare(running, sample, by_day[sample.day], of_journal)
    table = pa.Table.from_pylist([row._asdict() for row in sorted(compared)], schema.COMPARED)
    clocks = Clocks(compared)
    spans = {file: _span(file, clocks, of_journal.get(file.journal, ())) for file in files}
    return Survey(table, clocks, of_journal, spans, wanted, [file for file in written if file.table == schema.SENT])


def _span(file: JournalFile, clocks: Clocks, sessions: Sequence[JournalSession]) -> tuple[int, int] | None:
    """The times of a file by the corrected clock; None if that is unknown."""
    low, high = moved(file, clocks, sessions)
    return None if day_of(low) < EARLIEST else (low, high)


def _compare(
    running: PipelineRun,
    sample: TableFile,
    files: Iterable[JournalFile],
    of_journal: Mapping[tuple[str, str], Sequence[JournalSession]],
) -> list[Compared]:
    """Compare the clocks of a day by its sample."""
    spans = [
        (*journal, session.start_us, *records)
        for journal in sorted({file.journal for file in files} & of_journal.keys())
        for session, *records in record_ranges(of_journal[journal])
    ]
    with running.engine() as engine:
        duck.set_variables(engine, horizon=round(HORIZON * 1e6), day_number=start_of(sample.day) // DAY)
        duck.read(
            engine,
            "sample_file",
            running.place,
            [f"{sample.table}/{sample.path}"],
            {"message": "UBIGINT", "host": "VARCHAR", "journal_id": "VARCHAR", "rec": "BIGINT", "us": "BIGINT"},
        )
        engine.execute("CREATE TABLE samples AS FROM sample_file")
        counts = dict(engine.execute("SELECT host, count(*) FROM samples GROUP BY host").fetchall())
        together = engine.execute(
            "SELECT DISTINCT hosts FROM (SELECT list_sort(list(DISTINCT host)) AS hosts FROM samples GROUP BY message)"
        ).fetchall()
        found = references(counts, (hosts for (hosts,) in together))
        duck.give(engine, "refs", {"host": "VARCHAR", "ref_host": "VARCHAR"}, sorted(found.items()))
        columns = {"host": "VARCHAR", "journal_id": "VARCHAR"}
        numbers = dict.fromkeys(("start_us", "from_rec", "to_rec"), "BIGINT")
        duck.give(engine, "sessions", {**columns, **numbers}, spans)
        return [Compared(sample.day, *row[1:]) for row in engine.execute(duck.sql("skew")).fetchall()]


def compute(
    running: PipelineRun, days: Collection[str], surveyed: Survey, state: State, *, fixed: Collection[str] = ()
) -> Computed:
    """Compute the tables of ``days``, and of those behind them that follow otherwise from them then; never of days that
    are ``fixed``. ``state`` has the tables as the last run left them. Raises PipelineError."""
    computation = _Computation(running, surveyed, state, set(fixed))
    wanted = set(days)
    while wanted:
        computation.compute_days(wanted)
        wanted = computation.days_behind()
    return computation.finish()


class _Computation:
    """The tables of days, in the making."""

    def __init__(self, running: PipelineRun, surveyed: Survey, state: State, fixed: set[str]) -> None:
        self._running, self._surveyed, self._state, self._fixed = running, surveyed, state, fixed
        self._spans = {file: span for file, span in surveyed.spans.items() if span is not None}
        self._days: set[str] = set()
        self._made: dict[tuple[str, str], list[TableFile]] = {}
        self._checked: set[str] = set()

    # -- units

    def compute_days(self, days: Collection[str]) -> None:
        """Make all that follows from single days."""
        running, ordered = self._running, sorted(days)
        by_day = self._files_by_day(ordered)
        self._days |= set(ordered)
        before: str | None = None
        for day in ordered:
            receivers = find_receivers(day, by_day[day], self._surveyed.sessions, self._surveyed.corrections)
            running.put(f"day-{day}", receivers)
            own_days = sorted({file.day for file in by_day[day]})
            running.put(f"sent-{day}", self._files_of(schema.SENT, own_days))
            last = self._nearest_kept(day, -1)
            # The day before may be one that the same task computes first.
            chained = before is not None and last == before
            running.put(f"carried-{day}", None if chained else self._files_of(schema.EPOCHS, [last]) if last else [])
            before = day
        rows = {day: sum(file.rows for file in by_day[day]) for day in ordered}
        units = _units(max(rows.values(), default=0), running.runner.tasks)
        for table, day in list(self._made):
            if day in days:
                del self._made[table, day]
        for file in running.tasks(
            replace(running.task, kind="unit", days=tuple(ordered), low=low, high=high) for low, high in units
        ):
            self._made.setdefault((file.table, file.day), []).append(file)

    def _files_by_day(self, days: Sequence[str]) -> dict[str, dict[JournalFile, tuple[int, int]]]:
        """The files with rows of each day or of its margins, and their times."""
        by_day: dict[str, dict[JournalFile, tuple[int, int]]] = {day: {} for day in days}
        for file, (low, high) in self._spans.items():
            for number in range((low - MARGIN) // DAY, (high + MARGIN) // DAY + 1):
                if (day := day_of(number * DAY)) in by_day:
                    by_day[day][file] = low, high
        return by_day

    def _files_of(self, table: str, days: Collection[str]) -> list[str]:
        """The files of a table on days, as this run has made them or an earlier one, below the tables."""
        made = [
            f"{table}/{file.path}"
            for file in (*self._surveyed.written, *(file for files in self._made.values() for file in files))
            if file.table == table and file.day in days
        ]
        made_here = self._surveyed.days if table == schema.SENT else self._days
        return [*made, *self._state(table, set(days).difference(made_here))]

    def _nearest_kept(self, day: str, step: int) -> str | None:
        """The nearest day behind one, or before it (by the sign of ``step``), of which epochs are kept, within the
        carrying time: this run computes it, or an earlier one has."""
        for distance in range(1, self._running.task.carry_days + 1):
            other = day_of(start_of(day) + step * distance * DAY)
            if other in self._days or self._state(schema.EPOCHS, {other}):
                return other
        return None

    def days_behind(self) -> set[str]:
        """The next days that follow from what is other than before at the end of the days computed."""
        behind: set[str] = set()
        for day in sorted(self._days - self._checked):
            self._checked.add(day)
            following = self._nearest_kept(day, 1)
            if following is None or following in self._days or following in self._fixed:
                continue
            if self._is_other(day):
                behind.add(following)
        return behind

    def _is_other(self, day: str) -> bool:
        """Whether what a day hands on is other than what an earlier run left of it."""
        place = self._running.place
        columns = duck.types(schema.STATES[schema.EPOCHS])
        now = [f"{schema.EPOCHS}/{file.path}" for file in self._made.get((schema.EPOCHS, day), ())]
        with self._running.engine() as engine:
            duck.read(engine, "now", place, now, columns)
            duck.read(engine, "was", place, list(self._state(schema.EPOCHS, {day})), columns)
            (different,) = engine.execute(
                "SELECT count(*) FROM (((FROM now WHERE latest) EXCEPT (FROM was WHERE latest)) UNION ALL "
                "((FROM was WHERE latest) EXCEPT (FROM now WHERE latest)))"
            ).fetchall()[0]
        return bool(different)

    # -- what spans shares and days

    def finish(self) -> Computed:
        """Combine the parts of units, and what spans days."""
        running, days = self._running, sorted(self._days)
        folder = running.task.folder
        for day in days:
            parts = {
                table: [f"{folder}/{table}/{file.path}" for file in self._made.get((f"{folder}/{table}", day), ())]
                for table in SHARED
            }
            running.put(f"parts-{day}", parts)
        self._put_spanning("epochs", schema.EPOCHS, {})
        self._put_spanning("liveness", schema.HEARD, self._recording())
        tasks = [replace(running.task, kind="combine", days=(day,)) for day in days]
        spanning = [replace(running.task, kind=kind) for kind in ("epochs", "liveness")]
        combined = running.tasks([*tasks, *spanning])
        made = [file for (table, _), files in self._made.items() for file in files if not table.startswith(folder)]
        skew = self._skew(days)
        written: dict[str, list[TableFile]] = {name: [] for name in (*schema.TABLES, *schema.STATES)}
        replaced: dict[str, set[str]] = {name: set(days) for name in written}
        replaced["epochs"] = replaced["liveness"] = set()
        replaced[schema.SENT] = set(self._surveyed.days)
        for file in (*made, *combined, *skew, *self._surveyed.written):
            replaced[file.table] = replaced[file.table] | {file.day}
            if file.path:
                written[file.table].append(file)
        return Computed(days, written, replaced)

    def _put_spanning(self, table: str, kept: str, more: Mapping[str, Any]) -> None:
        """Leave what a table that spans days is made of: what is kept of the days computed and of those beside them for
        the carrying time, what was kept of them before, and the table as it is."""
        days, carry = sorted(self._days), self._running.task.carry_days
        beside = {
            day_of(start_of(day) + step * DAY) for day in (days[:1] + days[-1:]) for step in range(-carry, carry + 1)
        }
        first, last = min(beside, default=""), max(beside, default="")
        window = (
            {day_of(number * DAY) for number in range(start_of(first) // DAY, start_of(last) // DAY + 1)}
            if days
            else set()
        )
        files = [(day, path) for day in sorted(window) for path in self._files_of(kept, {day})]
        was = [(day, path) for day in days for path in self._state(kept, {day})]
        affected = window if table == "liveness" else window | self._first_days(path for _, path in (*files, *was))
        existing = [(day, path) for day in sorted(affected) for path in self._state(table, {day})]
        self._running.put(table, {"kept": files, "was_kept": was, "existing": existing, **more})

    def _first_days(self, paths: Iterable[str]) -> set[str]:
        """The days on which epochs began of which something is kept."""
        with self._running.engine() as engine:
            duck.read(engine, "kept", self._running.place, list(paths), {"first_us": "BIGINT"})
            rows = engine.execute(f"SELECT DISTINCT first_us // {DAY} FROM kept WHERE first_us IS NOT NULL").fetchall()
        return {day_of(number * DAY) for (number,) in rows}

    def _recording(self) -> dict[str, Any]:
        """When hosts were recording, by their corrected clocks, and where their data end."""
        spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        ends: dict[str, int] = {}
        clocks = self._surveyed.corrections
        for journal, sessions in self._surveyed.sessions.items():
            for session in sessions:
                first, last = (
                    time - clocks.of((*journal, session.start_us), day_of(time)).shift
                    for time in (session.start_us, session.end_us)
                )
                spans[session.host].append((first, max(first, last) + 1))
        for file, span in self._spans.items():
            ends[file.host] = max(span[1], ends.get(file.host, span[1]))
        recorded = [(host, *whole) for host, of_host in sorted(spans.items()) for whole in joined(of_host)]
        for host, _, last in recorded:
            ends[host] = max(last, ends.get(host, last))
        return {"recorded": recorded, "ends": sorted(ends.items())}

    def _skew(self, days: Sequence[str]) -> list[TableFile]:
        """Write the table skew: what was compared of hosts."""
        written = []
        rows = [row for row in self._surveyed.clocks.to_pylist() if not row["journal_id"]]
        with self._running.engine() as engine:
            columns = duck.types(schema.TABLES["skew"])
            for day in days:
                of_day = [tuple(row[name] for name in columns) for row in rows if row["day"] == day]
                duck.give(engine, "skews", columns, of_day)
                query = "FROM skews ORDER BY host"
                written += duck.write(engine, self._running.place, self._running.task.run, "skew", day, query)
        return written


def _units(rows: int, tasks: int) -> list[tuple[int, int]]:
    """Ranges of shares for a day with so many rows: as many as there are tasks side by side, unless there is little to
    do, and more where one would have too much."""
    count = max(1, -(-rows // UNIT_ROWS), tasks if rows > LEAST_ROWS else 1)
    bounds = [SHARES * number // count for number in range(count + 1)]
    return [(low, high - 1) for low, high in pairwise(bounds)]
