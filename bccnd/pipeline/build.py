"""The batch run: a journal -> all tables of all its days; and the step that incremental runs are made of.

Law: the tables are a function of the journal alone: what a build gives, any sequence of incremental runs over the same
files gives as well, row by row. Nothing is in its place before everything is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline import clocks, retained, schema, store
from bccnd.pipeline.compute import compute
from bccnd.pipeline.inputs import MARGIN, Journal
from bccnd.pipeline.tables import liveness as silences
from bccnd.pipeline.tables.channel_traffic import channel_traffic
from bccnd.pipeline.tables.integrity import integrity

#: what is kept for later runs, below `store.STATE`
ALIGN: Final = f"{store.STATE}/align"
HEARD: Final = f"{store.STATE}/heard"
SESSIONS: Final = f"{store.STATE}/sessions"
#: tables that every run makes of all days, from what was kept of them
WHOLE: Final = ("epochs", "liveness")
#: the steps that a run goes through
STEPS: Final = len(schema.TABLES) + 4

#: bytes of the journal for each part that rows are divided into, and parts for each processor at least: a part costs
#: about as much to begin as a hundred thousand rows to work on
PART: Final = 32 << 20
PARTS: Final = 2
_PARTITIONS: Final = "spark.sql.shuffle.partitions"

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What a run has done: the days that it computed, the rows that it wrote of each table, and what it took. ``left``
    are the days that it should have computed and left as they were, since records of them are gone."""

    days: list[str]
    rows: dict[str, int]
    seconds: float
    left: list[str] = field(default_factory=list)


def silent(step: str) -> None:
    """Nobody is told."""


def build(spark: SparkSession, journal: str, tables: str, *, tell: Tell = silent) -> Outcome:
    """Compute all tables anew. Of days that the journal does not have any more, the tables have nothing afterwards.

    Raises PipelineError.
    """
    began = time.monotonic()
    tell("looking at the journal")
    source = Journal(spark, journal)
    source.check()
    with store.opened(spark, tables) as kept:
        rows = recompute(spark, kept, source, source.sessions(), tell)
    return Outcome(source.days, rows, time.monotonic() - began)


def recompute(
    spark: SparkSession,
    kept: store.Store,
    source: Journal,
    sessions: DataFrame,
    tell: Tell = silent,
    *,
    days: Collection[str] | None = None,
    past: retained.Past | None = None,
) -> dict[str, int]:
    """Compute the tables of some days, or all, and put them in their places. Returns the rows written of each.
    ``past`` tells which other days can be computed again, should the epochs of these change their numbers."""
    _divide(spark, source, days)
    wanted = None if days is None else set(days)
    whole_state = None if days is None else kept.read(ALIGN)
    before = clocks.kept_corrections(whole_state)
    margin = MARGIN
    tell("epochs")
    while True:
        obs = source.obs(wanted, margin)
        if past is not None and wanted is not None:
            # Retention may have taken files since the journal was looked at; what goes from now on ends the run.
            still = past.complete(wanted, {retained.path_of(uri) for uri in obs.inputFiles()})
            if not still:
                refresh_sessions(spark, kept, sessions, tell)
                return {}
            if still != wanted:
                wanted = still
                continue
        state = None
        if whole_state is not None and wanted is not None:
            state = whole_state.where(~F.col("day").isin(*wanted))
        result = compute(spark, obs, sessions, days=None if wanted is None else sorted(wanted), state=state)
        wider = MARGIN + clocks.widest(source.days if wanted is None else wanted, result.corrections)
        if wanted is None or days is None:
            margin = wider
            break
        more = (clocks.moved(days, wanted, result.corrections, before) | set(result.renumbered)) - wanted
        # What retention has taken from the journal cannot be computed anew, and stays as it is.
        more = more & set(source.days) if past is None else past.complete(more - past.left)
        if not more and wider <= margin:
            break
        result.close()
        wanted |= more
        margin = max(margin, wider)
    try:
        for name, frame in result.tables.items():
            tell(name)
            kept.write(name, frame)
        tell("channel_traffic")
        kept.write("channel_traffic", schema.conform("channel_traffic", channel_traffic(result.traffic)))
        tell("what is kept of the days")
        kept.write(ALIGN, result.state)
        kept.write(retained.FILES, retained.files_of(spark, source, obs, wanted, margin))
    finally:
        result.close()
    if result.corrections:
        whole = clocks.of_days(clocks.put_right(spark, obs, result.corrections), wanted)
    else:
        whole = obs if wanted is None else obs.where(F.col("day").isin(*wanted))
    tell("integrity")
    kept.write("integrity", schema.conform("integrity", integrity(whole)))
    tell("who was heard")
    pieces = silences.buckets(whole).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        kept.write(HEARD, silences.state(pieces, silences.rhythms(whole, pieces)))
    finally:
        pieces.unpersist()
    _write_sessions(spark, kept, sessions, result.corrections, wanted, tell)
    tell("counting rows")
    counts = _counts(kept)
    tell("putting the tables in their places")
    kept.commit(wanted, whole=WHOLE)
    return counts


def _divide(spark: SparkSession, source: Journal, days: Collection[str] | None) -> None:
    """Have Spark divide rows into as many parts as are worth it, unless whoever started it has said how many: its usual
    200 parts cost a small journal minutes."""
    context = spark.sparkContext
    if not context.getConf().contains(_PARTITIONS):
        size = sum(one.size for one in source.files if days is None or one.file.day in days)
        spark.conf.set(_PARTITIONS, max(PARTS * context.defaultParallelism, size // PART))


def refresh_sessions(spark: SparkSession, kept: store.Store, sessions: DataFrame, tell: Tell = silent) -> None:
    """Put in place what follows from sessions alone, where no day has to be computed."""
    _write_sessions(spark, kept, sessions, clocks.kept_corrections(kept.read(ALIGN)), (), tell)
    kept.commit((), whole=WHOLE)


def _write_sessions(
    spark: SparkSession,
    kept: store.Store,
    sessions: DataFrame,
    corrections: Mapping[clocks.Key, int],
    days: Collection[str] | None,
    tell: Tell,
) -> None:
    """The sessions, and the table of silences, from what is kept of these days and of all others; a silence may end on
    any later day."""
    kept.write(SESSIONS, sessions.withColumn("day", F.lit("all")))
    tell("liveness")
    heard = kept.written(HEARD)
    earlier = None if days is None else kept.read(HEARD)
    if earlier is not None and days is not None:
        others = earlier.where(~F.col("day").isin(*days))
        heard = others if heard is None else heard.unionByName(others)
    if heard is not None:
        sessions = clocks.sessions_put_right(spark, sessions, corrections)
        kept.write("liveness", schema.conform("liveness", silences.liveness(heard, sessions)))
    else:
        kept.empty("liveness")


def _counts(kept: store.Store) -> dict[str, int]:
    """Rows written of each table."""
    written = {name: kept.written(name) for name in schema.TABLES}
    ones = [frame.select(F.lit(name).alias("table")) for name, frame in written.items() if frame is not None]
    found = dict.fromkeys(schema.TABLES, 0)
    if ones:
        for row in reduce(DataFrame.union, ones).groupBy("table").agg(F.count("*").alias("n")).collect():
            found[row.table] = row.n
    return found
