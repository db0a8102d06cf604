"""Makes the tables of a journal: all of them anew, or the days that files touch which came since the last run.

Invariant: the tables are a function of the journal alone: what a build gives, any sequence of incremental runs over the
same files gives as well, row by row. What the tables were made of is kept with them, so a pass that is repeated,
because it was killed, gives the same tables. Readers see no table of a run before all of them are written.

Days that are final stay as they are, unless they are asked for, and so do days of which records are gone: the files
that came for a final day are named, as long as they are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.pipeline import compute, schema
from bccnd.pipeline.driver.recorded_inputs import KEPT, RecordedInputs
from bccnd.pipeline.inputs import input_history, journal
from bccnd.pipeline.inputs.coverage import DamagedFile, Missing, covered
from bccnd.pipeline.inputs.file_checks import CHANGED
from bccnd.pipeline.inputs.input_history import FINAL_AFTER, Used
from bccnd.pipeline.inputs.journal import Journal
from bccnd.pipeline.inputs.journal_listing import NONE, ListedFile, require_journal
from bccnd.pipeline.inputs.sessions import JournalSession
from bccnd.pipeline.inputs.verification import JournalFile
from bccnd.pipeline.lake import table_changes
from bccnd.pipeline.lake.delta import KEEP
from bccnd.pipeline.lake.parquet import File
from bccnd.pipeline.lake.place import Root, usable
from bccnd.pipeline.lake.table_changes import TableChanges
from bccnd.pipeline.units.verify import verify_files
from bccnd.pipeline.units.work import Runner

#: the steps that a run goes through
STEPS: Final = 4
#: how often a journal is listed again whose files go away meanwhile
_TRIES: Final = 5

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What a run has done: the days that it computed, the rows that it wrote of each table, and what it took. ``left``
    are the days that it should have computed and left as they were, since records of them are gone; ``late`` are files
    of final days that the tables do not have; ``damaged`` files were left out, and ``missing`` are records that no file
    has. ``newest_us`` is the time of the newest record (microseconds since 1970), 0 if there is none."""

    days: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    damaged: list[DamagedFile] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    newest_us: int = 0


def silent(step: str) -> None:
    """Progress that nothing shows."""


def build(runner: Runner, where: str, tables: str, *, progress: Progress = silent, keep: float = KEEP) -> Outcome:
    """Compute all tables anew. Of days that the journal does not have any more, the tables have nothing afterwards.
    What the tables were before stays readable for ``keep`` seconds. Raises PipelineError."""
    lost: dict[str, str] = {}

    def go_on(path: str) -> None:
        """Leave out the days of a host at which retention is at work: it takes them file by file."""
        name = file_names.read_path(path)
        if name is not None:
            lost[name.host] = max(name.day, lost.get(name.host, ""))

    return _measured(lambda: _Pass(runner, where, tables, progress).build(keep, lost), go_on)


def once(
    runner: Runner,
    where: str,
    tables: str,
    *,
    progress: Progress = silent,
    keep: float = KEEP,
    final_after: float = FINAL_AFTER,
    days: Collection[str] = (),
) -> Outcome:
    """One pass over what is new, and over these ``days``, final or not. Days are final so many seconds before the
    newest day of the tables, never if ``final_after`` is 0. What the pass replaces stays readable for ``keep`` seconds.
    Raises PipelineError."""
    return _measured(lambda: _Pass(runner, where, tables, progress).update(keep, final_after, set(days)))


def _measured(run: Callable[[], Outcome], on_lost: Callable[[str], object] | None = None) -> Outcome:
    """The outcome of a run, which begins again if a file of the journal went away meanwhile."""
    began = time.monotonic()
    for attempt in range(_TRIES):
        try:
            outcome = run()
        except PipelineError as error:
            if error.reason != CHANGED or attempt == _TRIES - 1:
                raise
            if on_lost is not None:
                on_lost(f"{file_names.OBS}/host={error.detail.partition('/host=')[2].partition(' ')[0]}")
            continue
        return replace(outcome, seconds=time.monotonic() - began)
    raise AssertionError("unreachable")


def open_journal(where: str, tables: str, *, remote: bool) -> Root:
    """Open a journal, and check what can be checked before a runner starts. ``remote`` is that of the runner. Raises
    PipelineError: keys_in_uri, no_place, no_journal."""
    for place in (where, tables):
        if remote and "@" in urlsplit(place).netloc:
            raise PipelineError(
                "keys_in_uri",
                "a URI with keys would be sent to every task of Spark",
                "put the keys into the environment (AWS_ACCESS_KEY_ID, ...), here and on the workers",
            )
    with usable(where):
        root = Root(where)
        require_journal(root)
    return root


class _Pass:
    """One pass over a journal."""

    def __init__(self, runner: Runner, where: str, tables: str, progress: Progress) -> None:
        self._runner = runner
        self._tables = tables
        self._progress = progress
        self._root = open_journal(where, tables, remote=runner.remote)
        progress("looking for new files")

    def build(self, keep: float, lost: Mapping[str, str]) -> Outcome:
        found = journal.read_journal(self._root, self._verify, lost=lost)
        if not found.files and not found.damaged:
            detail = f"the journal at {self._root.where} has no records yet"
            raise PipelineError("empty_journal", detail, "check that the recorder runs")
        with table_changes.opened(self._tables, {**schema.ALL, **KEPT}) as changes:
            changes.replace_all()
            outcome = self._compute(changes, RecordedInputs(), found, found.sessions)
            changes.commit(keep)
        return outcome

    def update(self, keep: float, final_after: float, asked: set[str]) -> Outcome:
        with table_changes.opened(self._tables, {**schema.ALL, **KEPT}) as changes:
            recorded = RecordedInputs.of(changes.lake)
            first_open = input_history.first_open_day(recorded.days, final_after, time.time())
            final = recorded.final_days(first_open)
            listed_as_final = NONE if asked else final
            recorded.load(day for day in recorded.days if not listed_as_final.has(day))
            found = journal.read_journal(self._root, self._verify, recorded, listed_as_final)
            known = input_history.remember(recorded.sessions, found.sessions)
            late = recorded.still_late(self._root, found, final)
            if not asked and recorded.has_all(found, known, late, first_open):
                return _outcome(found, recorded.late, recorded.newest_us)
            outcome = self._compute(changes, recorded, found, known, first_open, late, asked)
            changes.commit(keep)
        return outcome

    def _verify(self, files: Sequence[ListedFile]) -> list[JournalFile | str | None]:
        if files:
            self._progress(f"verifying {len(files)} file{'s' * (len(files) > 1)}")
        return verify_files(self._root, files, self._runner.run)

    def _compute(
        self,
        changes: TableChanges,
        recorded: RecordedInputs,
        found: Journal,
        known: Sequence[JournalSession],
        first_open: str = "",
        late: Collection[str] = (),
        asked: Collection[str] = (),
    ) -> Outcome:
        """Compute what is due. ``known`` are the sessions of the journal and those that retention took from it."""
        listening = covered(known, found.missing, found.damaged)
        before = recorded.listening()
        self._progress("comparing clocks")
        running = compute.PipelineRun(self._runner, changes.lake.root, changes.run, self._root.where)
        new = [file for file in found.files if recorded.files.get(file.listed) != file]
        days = {file.day for file in (*new, *recorded.withdrawn(found))}
        days |= input_history.changed(before, listening, lambda _session, _time: 0)
        survey = compute.survey(running, found.files, listening, days, recorded.clocks())
        used = {file: Used(file.listed, *span) for file, span in survey.spans.items() if span is not None}
        due = input_history.find_due(
            used.values(),
            found.listed,
            recorded.day,
            recorded.days,
            changed_days=input_history.changed(before, listening, partial(_shift, survey)),
            asked=asked,
            first_open=first_open,
        )
        due.late |= {*late}
        self._progress(f"computing {len(due.days)} day{'s' * (len(due.days) != 1)}")
        computed = compute.compute(running, due.days, survey, recorded.state, fixed=due.fixed)
        for table in schema.ALL:
            written = [File(*file[1:]) for file in computed.written.get(table, ())]
            changes.add(table, written, computed.replaced.get(table, ()))
        changes.put(schema.CLOCKS, survey.clocks)
        found.damaged += [journal.unknown_clock(self._root, file) for file in survey.spans if file not in used]
        recorded.record(changes, found, known, due, computed.days)
        self._progress("committing the tables")
        rows = {table: sum(file.rows for file in computed.written.get(table, ())) for table in schema.TABLES}
        newest_us = max((use.to_us for use in used.values()), default=recorded.newest_us)
        return replace(
            _outcome(found, due.late, newest_us), days=sorted(computed.days), rows=rows, left=sorted(due.left)
        )


def _shift(survey: compute.Survey, session: JournalSession, time_us: int) -> int:
    """By how much the clock of a session was ahead."""
    return survey.corrections.of(session[:3], file_names.day_of(time_us)).shift


def _outcome(found: Journal, late: Collection[str], newest_us: int) -> Outcome:
    return Outcome(late=sorted(late), damaged=sorted(found.damaged), missing=found.missing, newest_us=newest_us)
