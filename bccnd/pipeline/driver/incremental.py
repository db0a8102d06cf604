"""Updates tables: computes the days that files touch which came since the last run.

Invariant: every file that comes before its day is final is counted exactly once. What the tables were made of is kept
with them (`input_history.FILES`); the days that other files touch are computed anew from all that the journal has of
them. So a pass that is repeated, because it was killed, gives the same tables.

A new file touches the days of its rows, and the neighbours of those near to midnight; a change of sessions touches the
days in which a receiver now counts as recording, or not, other than before. Days without tables are touched as well.
What retention takes from the journal changes nothing: a day of which records are gone is never computed again. Nor is
a day that is final (final_days.py), unless it is asked for: its new files are named, as long as they are there.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from pyspark.sql import SparkSession

from bccnd.journal import schema as journal_schema
from bccnd.pipeline.driver.build import Outcome, Progress, recompute, silent
from bccnd.pipeline.driver.final_days import FINAL_AFTER, first_open_day
from bccnd.pipeline.inputs import damaged_files, input_history, journal_files
from bccnd.pipeline.inputs.damaged_files import DamagedFile
from bccnd.pipeline.inputs.session_files import open_journal
from bccnd.pipeline.lake import delta, table_store
from bccnd.pipeline.tables import schema


def once(
    spark: SparkSession,
    journal: str,
    tables: str,
    *,
    progress: Progress = silent,
    keep: float = delta.KEEP,
    final_after: float = FINAL_AFTER,
    days: Collection[str] = (),
) -> Outcome:
    """One pass over what is new, and over these ``days``, final or not. Days are final so many seconds before the
    newest day of the tables, never if ``final_after`` is 0. What the pass replaces stays readable for ``keep`` seconds.
    Raises PipelineError."""
    began = time.monotonic()
    outcome = journal_files.repeated(lambda: _pass(spark, journal, tables, progress, keep, final_after, set(days)))
    rows = dict.fromkeys(schema.TABLES, 0) | outcome.rows
    return replace(outcome, rows=rows, seconds=time.monotonic() - began)


def _pass(
    spark: SparkSession, journal: str, tables: str, progress: Progress, keep: float, final_after: float, asked: set[str]
) -> Outcome:
    """What the pass has done; its time is not measured yet."""
    progress("looking for new files")
    source, listed = open_journal(journal, may_be_empty=True)
    if not source.files:
        return Outcome([], {}, 0)
    with table_store.opened(spark, tables, keep=keep) as kept:
        before = input_history.read_sessions(kept.load(delta.SESSIONS, journal_schema.SESSIONS))
        sessions = input_history.remember(before, listed)
        known_damaged = damaged_files.from_table(kept.load(delta.DAMAGED, damaged_files.COLUMNS))
        first_open = first_open_day(kept.days(input_history.FILES), final_after, time.time())
        # Days that are asked for follow from all that is known of others, and may change any of them.
        final_before = "" if asked else first_open
        past = input_history.InputHistory(kept, source, known_damaged, final_before)
        changed = past.new_days | input_history.changed(before, sessions)
        needed = past.days - (kept.days(input_history.FILES) - changed)
        days = past.complete(asked | {day for day in needed if day >= first_open})
        unused = past.unused()
        if unused:
            kept.write(input_history.FILES, input_history.frame(spark, unused))
        rows: dict[str, int] = {}
        damaged = [*past.damaged, *(DamagedFile(*file) for file in source.foreign)]
        if days or set(sessions) != set(before) or set(damaged) != set(known_damaged):
            # A change of sessions alone may end a silence that was open.
            rows, damaged = recompute(
                spark, kept, source, sessions, progress, days=days, past=past, first_open=final_before
            )
        elif unused:
            kept.commit(())
        return Outcome(sorted(days - past.left), rows, 0, sorted(past.left), past.late, damaged)
