"""The incremental run: files that came since the last one -> the tables of the days that they touch.

Law: every file that ever comes is counted, however late, exactly once: Spark's file source remembers in the checkpoint
which were seen, and the days that new ones touch are computed anew from all that the journal has of them. So a pass
that is repeated, because it was killed before the checkpoint knew of it, gives the same tables again.

A new file touches the days of its rows, and the neighbours of those near to midnight; a change of sessions touches the
days in which a receiver now counts as recording, or not, other than before. Days of which nothing is known here, since
the tables were lost or are new, are touched as well. What retention takes from the journal changes nothing
(retained.py): a day of which records are gone is never computed again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bccnd.errors import PipelineError
from bccnd.journal import layout
from bccnd.pipeline import retained, schema, store
from bccnd.pipeline.build import HEARD, SESSIONS, Outcome, Tell, recompute, refresh_sessions, silent
from bccnd.pipeline.inputs import Journal

#: a file older than this, against the newest, would be left out: a host may have been away for as long as it likes
MAX_AGE: Final = "36500d"


class _Batch:
    """What one pass does with the rows of new files; `error` is what went wrong, which Spark would tell in its own
    words."""

    def __init__(self, spark: SparkSession, journal: str, tables: str, tell: Tell) -> None:
        self._spark = spark
        self._journal = journal
        self._tables = tables
        self._tell = tell
        self.days: set[str] = set()
        self.left: set[str] = set()
        self.rows: dict[str, int] = dict.fromkeys(schema.TABLES, 0)
        self.error: PipelineError | None = None

    def __call__(self, batch: DataFrame, _number: int) -> None:
        try:
            # The only look at the batch: every further one would read its files again.
            us = F.unix_micros("ts")
            found = (
                batch.groupBy("day")
                .agg(F.min(us).alias("low"), F.max(us).alias("high"), F.collect_set("path").alias("paths"))
                .collect()
            )
            new = {retained.path_of(path) for row in found for path in row.paths}
            self.refresh(retained.touched((row.low, row.high) for row in found), new)
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
            before = retained.stretches_in(kept.read(SESSIONS))
            known = retained.remember(before, retained.stretches_in(source.sessions()))
            wanted = set(days) | retained.changed(before, known) | (set(source.days) - kept.days(HEARD))
            past = retained.Past(self._spark, kept, source)
            wanted = past.complete(wanted & set(source.days))
            sessions = retained.sessions_frame(self._spark, known)
            if wanted:
                found = recompute(self._spark, kept, source, sessions, self._tell, days=wanted, past=past)
                for name, count in found.items():
                    self.rows[name] += count
                self.days |= wanted - past.left
            elif set(known) != set(before):
                # no day has other rows, but the data end elsewhere: what is open may be so no more
                refresh_sessions(self._spark, kept, sessions, self._tell)
            self.left |= past.left


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
    return Outcome(sorted(batch.days), batch.rows, time.monotonic() - began, sorted(batch.left))
