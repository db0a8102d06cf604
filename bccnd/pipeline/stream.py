"""The incremental run: files that came since the last one -> the tables of the days that they touch.

Law: every file that ever comes is counted, however late, exactly once: Spark's file source remembers in the checkpoint
which were seen, and the days that new ones touch are computed anew from all that the journal has of them. So a pass
that is repeated, because it was killed before the checkpoint knew of it, gives the same tables again.

A new file touches the days of its rows, and the neighbours of those near to midnight; a change of sessions touches the
days in which a receiver now counts as recording, or not, other than before. Days of which nothing is known here, since
the tables were lost or are new, are touched as well.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bccnd.errors import PipelineError
from bccnd.journal import layout
from bccnd.pipeline import schema, store
from bccnd.pipeline.build import HEARD, SESSIONS, Outcome, Tell, recompute, silent
from bccnd.pipeline.inputs import MARGIN, Journal

#: a file older than this, against the newest, would be left out: a host may have been away for as long as it likes
MAX_AGE: Final = "36500d"
_ONE_DAY: Final = datetime.timedelta(days=1)


class Span(NamedTuple):
    """A stretch of recording."""

    host: str
    journal_id: str
    start: datetime.datetime


class _Batch:
    """What one pass does with the rows of new files; `error` is what went wrong, which Spark would tell in its own
    words."""

    def __init__(self, spark: SparkSession, journal: str, tables: str, tell: Tell) -> None:
        self._spark = spark
        self._journal = journal
        self._tables = tables
        self._tell = tell
        self.days: set[str] = set()
        self.rows: dict[str, int] = dict.fromkeys(schema.TABLES, 0)
        self.error: PipelineError | None = None

    def __call__(self, batch: DataFrame, _number: int) -> None:
        try:
            # The only look at the batch: every further one would read its files again.
            found = (
                batch.groupBy("day")
                .agg(F.min("ts").alias("low"), F.max("ts").alias("high"), F.collect_set("path").alias("paths"))
                .collect()
            )
            new = {f"{layout.OBS}/{path.rpartition(f'/{layout.OBS}/')[2]}" for row in found for path in row.paths}
            self.refresh(touched((row.low, row.high) for row in found), new)
        except PipelineError as error:
            self.error = error
            raise
        except (PySparkException, Py4JJavaError):
            self.error = self._culprit()
            raise

    def _culprit(self) -> PipelineError | None:
        """The file on which Spark has failed, if it was one."""
        try:
            Journal(self._spark, self._journal).check()
        except PipelineError as error:
            return error
        return None

    def refresh(self, days: Iterable[str], new: Iterable[str] = ()) -> None:
        """Compute what these days, new files, changed sessions and missing days make necessary."""
        source = Journal(self._spark, self._journal, may_be_empty=True)
        source.check(set(new))
        if not source.days:
            return
        with store.opened(self._spark, self._tables) as kept:
            before, after = _spans(kept.read(SESSIONS)), _spans(source.sessions())
            wanted = set(days) | changed(before, after) | (set(source.days) - kept.days(HEARD))
            wanted &= set(source.days)
            if not wanted and before != after:
                # no day has other rows, but the data end elsewhere: what is open may be so no more
                wanted = {source.days[-1]}
            if wanted:
                for name, count in recompute(self._spark, kept, source, wanted, self._tell).items():
                    self.rows[name] += count
                self.days |= wanted


def touched(spans: Iterable[tuple[datetime.datetime, datetime.datetime]]) -> set[str]:
    """The days of rows from and up to these moments, those within `MARGIN` of the next day counted there as well."""
    found: set[str] = set()
    for low, high in spans:
        day, last = (low - MARGIN).date(), (high + MARGIN).date()
        while day <= last:
            found.add(day.isoformat())
            day += _ONE_DAY
    return found


def changed(before: Mapping[Span, datetime.datetime], after: Mapping[Span, datetime.datetime]) -> set[str]:
    """The days in which receivers were recording in only one of two sets of sessions, each span with its end."""
    spans = []
    for span in before.keys() | after.keys():
        ends = [ends[span] for ends in (before, after) if span in ends]
        if len(ends) == 1:
            spans.append((span.start, ends[0]))
        elif ends[0] != ends[1]:
            spans.append((min(ends), max(ends)))
    return touched(spans)


def _spans(sessions: DataFrame | None) -> dict[Span, datetime.datetime]:
    if sessions is None:
        return {}
    rows = sessions.select("host", "journal_id", "start_ts", "end_ts").collect()
    return {Span(row.host, row.journal_id, row.start_ts): row.end_ts for row in rows}


def once(spark: SparkSession, journal: str, tables: str, checkpoint: str, *, tell: Tell = silent) -> Outcome:
    """One pass over what is new. Raises PipelineError."""
    began = time.monotonic()
    if not store.Folder(spark, journal).exists(layout.OBS):
        Journal(spark, journal)
    tell("looking for new files")
    batch = _Batch(spark, journal, tables, tell)
    root = store.Folder(spark, journal)
    new = (
        spark.readStream.schema(StructType(list(schema.OBS.fields)).add("day", "string"))
        .option("maxFileAge", MAX_AGE)
        .option("pathGlobFilter", "*.parquet")
        # retention may have taken what was seen but not yet worked on
        .option("ignoreMissingFiles", "true")
        .parquet(root.at(layout.OBS))
        .select("ts", "day", F.col("_metadata.file_path").alias("path"))
    )
    query = (
        new.writeStream.foreachBatch(batch)
        .option("checkpointLocation", store.Folder(spark, checkpoint).uri)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except (PySparkException, Py4JJavaError):
        if batch.error is not None:
            raise batch.error from None
        raise
    finally:
        query.stop()
    batch.refresh(())
    return Outcome(sorted(batch.days), batch.rows, time.monotonic() - began)
