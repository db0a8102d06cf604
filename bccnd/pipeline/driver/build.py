"""Builds all tables of all days of a journal; and the step that incremental runs are made of.

Invariant: the tables are a function of the journal alone: what a build gives, any sequence of incremental runs over the
same files gives as well, row by row. Readers see no table of a run before all of them are written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.journal import file_names
from bccnd.pipeline.driver import final_days
from bccnd.pipeline.driver.compute import Result, compute, inputs_of, set_partitions
from bccnd.pipeline.driver.final_days import ALIGN, HEARD, Carry
from bccnd.pipeline.hosts import clocks
from bccnd.pipeline.hosts.receiving_hosts import JournalSpan
from bccnd.pipeline.inputs import damaged_files, input_history, journal_files
from bccnd.pipeline.inputs.damaged_files import DamagedFile
from bccnd.pipeline.inputs.session_files import open_journal, without_damaged
from bccnd.pipeline.lake import delta, table_store
from bccnd.pipeline.tables import schema
from bccnd.pipeline.tables.liveness import liveness

#: tables that every run makes of all days, from what was kept of them
WHOLE: Final = ("epochs", "liveness")
#: the steps that a run goes through
STEPS: Final = 5
#: tables that are written side by side
_WRITERS: Final = 4

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What a run has done: the days that it computed, the rows that it wrote of each table, and what it took. ``left``
    are the days that it should have computed and left as they were, since records of them are gone; ``late`` are files
    of final days that the tables do not have; ``damaged`` files of the journal were left out."""

    days: list[str]
    rows: dict[str, int]
    seconds: float
    left: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    damaged: list[DamagedFile] = field(default_factory=list)


def silent(step: str) -> None:
    """Progress that nothing shows."""


def build(
    spark: SparkSession, journal: str, tables: str, *, progress: Progress = silent, keep: float = delta.KEEP
) -> Outcome:
    """Compute all tables anew. Of days that the journal does not have any more, the tables have nothing afterwards.
    What the tables were before stays readable for ``keep`` seconds.

    Raises PipelineError.
    """
    began = time.monotonic()
    lost: dict[str, str] = {}

    def run() -> Outcome:
        progress("listing the journal")
        source, sessions = open_journal(journal, lost=lost)
        with table_store.opened(spark, tables, keep=keep) as kept:
            rows, damaged = recompute(spark, kept, source, sessions, progress)
        return Outcome(source.days, rows, time.monotonic() - began, damaged=damaged)

    def go_on(file: file_names.ObsFile) -> None:
        """Leave out the days of a host at which retention is at work: it takes them file by file."""
        lost[file.host] = max(file.day, lost.get(file.host, ""))

    return journal_files.repeated(run, go_on)


def recompute(
    spark: SparkSession,
    kept: table_store.Store,
    source: journal_files.Journal,
    sessions: Sequence[input_history.Session],
    progress: Progress = silent,
    *,
    days: Collection[str] | None = None,
    past: input_history.InputHistory | None = None,
    first_open: str = "",
) -> tuple[dict[str, int], list[DamagedFile]]:
    """Compute the tables of some days, or all, and put them in their places. Returns the rows written of each, and all
    files of the journal that cannot be used. ``past`` finds which other days can be computed again, should rows of them
    go to other epochs now; days before ``first_open`` are final."""
    set_partitions(spark, inputs_of(source, days, journal_files.MARGIN))
    wanted = None if days is None else set(days)
    damaged = set() if past is None else {*past.damaged}
    everything, sessions = sessions, without_damaged(sessions, damaged)
    with ExitStack() as persisted:
        background = persisted.enter_context(ThreadPoolExecutor(1))
        carry = None if days is None else final_days.carry(kept, first_open, background)
        state = None if days is None else kept.read(ALIGN, schema.ALIGN, _known_days(kept, carry))
        if state is not None:
            # Each step that looks at it would read its files again.
            persisted.callback(state.persist(StorageLevel.DISK_ONLY).unpersist)
        corrections: Mapping[clocks.Key, int] = clocks.kept_corrections(state)
        if wanted is None or wanted:
            progress("reading the journal")
            result = _settled(spark, kept, source, sessions, state, wanted, corrections, past, carry)
            persisted.callback(result.close)
            corrections = result.corrections
            wanted = set(result.days)
            damaged |= {*result.damaged}
            sessions = without_damaged(sessions, result.damaged)
            progress("writing tables")
            _write(spark, kept, result, carry)
    progress("finding silences")
    kept.put(delta.SESSIONS, input_history.sessions_table(everything))
    damaged |= {DamagedFile(*file) for file in source.foreign}
    kept.put(delta.DAMAGED, damaged_files.to_table(damaged))
    replaced = None if days is None else wanted
    _write_liveness(kept, clocks.correct_sessions(sessions, corrections), replaced, carry)
    if carry is None:
        # What was carried may follow from days that were computed anew.
        for name, columns in ((final_days.CARRIED, schema.CARRIED), (final_days.CARRIED_HEARD, schema.CARRIED_HEARD)):
            if kept.days(name):
                kept.empty(name, columns)
                kept.replace(name)
        for name in WHOLE:
            kept.replace(name)
    progress("committing the tables")
    kept.commit(replaced)
    return {name: kept.rows.get(name, 0) for name in schema.TABLES}, sorted(damaged)


def _known_days(kept: table_store.Store, carry: Carry | None) -> set[str] | None:
    """The days of which more is known than what is carried; None: all."""
    return None if carry is None else {day for day in kept.days(ALIGN) if day >= carry.first}


def _settled(
    spark: SparkSession,
    kept: table_store.Store,
    source: journal_files.Journal,
    sessions: Sequence[input_history.Session],
    state: DataFrame | None,
    days: set[str] | None,
    before: Mapping[clocks.Key, int],
    past: input_history.InputHistory | None,
    carry: Carry | None,
) -> Result:
    """The result for these days, and for those that have to be computed with them."""
    if days is None or past is None:
        return compute(spark, source, sessions)
    heard = kept.read(HEARD, schema.HEARD, _known_days(kept, carry))
    spans = []
    if heard is not None and state is not None:
        spans = heard.where("what = 'journal'").select("day", "host", "src", "from_us", "to_us").collect()
    margin = journal_files.MARGIN
    wanted = set(days)
    while True:
        other_days = None if state is None else state.where(~F.col("day").isin(*wanted))
        journals = [JournalSpan(*row) for day, *row in spans if day not in wanted]
        result = compute(
            spark, source, sessions, days=wanted, state=other_days, journals=journals, margin=margin, carry=carry
        )
        widest = journal_files.MARGIN + clocks.widest(wanted, result.corrections)
        more = (clocks.days_touched(days, wanted, result.corrections, before) | set(result.renumbered)) - wanted
        # What retention has taken from the journal cannot be computed anew, and stays as it is.
        more = past.complete(more - past.left)
        if not more and widest <= margin:
            return result
        result.close()
        wanted |= more
        margin = max(margin, widest)


def _write(spark: SparkSession, kept: table_store.Store, result: Result, carry: Carry | None) -> None:
    """Write all that follows from these days, side by side: each alone would leave processors idle."""
    frames = {
        **result.tables,
        ALIGN: result.state,
        HEARD: result.heard.select(*schema.HEARD.names, "day"),
        input_history.FILES: input_history.frame(spark, result.files),
    }
    steps: dict[str, Callable[[], None]] = {name: partial(kept.write, name, frame) for name, frame in frames.items()}
    if carry is not None:
        steps["epochs"] = partial(final_days.put_epochs, kept, frames["epochs"], carry.open)
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(lambda step: step(), steps.values()))


def _write_liveness(
    kept: table_store.Store,
    sessions: Sequence[input_history.Session],
    days: Collection[str] | None,
    carry: Carry | None,
) -> None:
    """The silences of all days: one may end on any later day."""
    heard = kept.written(HEARD, schema.HEARD)
    earlier = None if days is None else kept.read(HEARD, schema.HEARD, _known_days(kept, carry))
    if earlier is not None:
        other_days = earlier.where(~F.col("day").isin(*days)) if days else earlier
        heard = other_days if heard is None else heard.unionByName(other_days)
    if heard is None:
        kept.empty("liveness", schema.TABLES["liveness"])
        return
    if carry is not None:
        again = final_days.unsettled(carry.heard, heard)
        heard = heard.unionByName(again.select(*heard.columns, "verdict"), allowMissingColumns=True)
    silences = schema.conform("liveness", liveness(heard, (session[:4] for session in sessions)))
    if carry is None:
        kept.write("liveness", silences)
    else:
        final_days.put_liveness(kept, silences, heard, carry.open)
