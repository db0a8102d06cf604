"""What the incremental run remembers of records and sessions that retention has taken from a journal.

Invariant: retention never changes a table. A recorder removes its oldest files, and takes the time of what it removed
out of its sessions. The sessions that were known before are kept (`remember`), and a day is not computed again once a
file that its tables were made of is gone (`Past`): its tables stay as they are.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.journal import layout
from bccnd.journal import schema as journal_schema
from bccnd.pipeline import store
from bccnd.pipeline.inputs import MARGIN, Journal

#: the files that the tables of a day were made of, below the tables: ``path`` and ``day``
FILES: Final = f"{store.STATE}/files"
_DAY: Final = 86_400 * layout.MICROSECONDS


class Stretch(NamedTuple):
    """A row of sessions; times in microseconds since 1970."""

    host: str
    journal_id: str
    start: int
    end: int
    socket_drops: int = 0
    tap_gaps: int = 0
    version: str = ""


def touched(spans: Iterable[tuple[int, int]], margin: datetime.timedelta = MARGIN) -> set[str]:
    """The days of rows from and up to these times, those within the margin of the next day counted there as well."""
    near = margin // datetime.timedelta(microseconds=1)
    return {
        layout.day_of(day * _DAY)
        for low, high in spans
        for day in range((low - near) // _DAY, (high + near) // _DAY + 1)
    }


def remember(before: Iterable[Stretch], after: Iterable[Stretch]) -> list[Stretch]:
    """The sessions that a journal has now (``after``), and what retention has taken of those known before.

    Retention moves the first start of a journal forward, removes its first stretches or all of them. So what was known
    in front of the first start that is left is still true; behind it the journal is right.
    """
    now = _by_journal(after)
    for journal, known in _by_journal(before).items():
        left = now.get(journal, [])
        if left:
            first, *others = left
            known = [one for one in known if one.start < first.start]
            start = min((one.start for one in known if one.end >= first.start), default=first.start)
            left = [first._replace(start=start), *others]
            known = [one for one in known if one.end < first.start]
        now[journal] = [*known, *left]
    return [one for _, stretches in sorted(now.items()) for one in stretches]


def _by_journal(stretches: Iterable[Stretch]) -> dict[tuple[str, str], list[Stretch]]:
    return {key: list(found) for key, found in groupby(sorted(stretches), key=lambda one: (one.host, one.journal_id))}


def changed(before: Iterable[Stretch], after: Iterable[Stretch]) -> set[str]:
    """The days in which receivers were recording in only one of two sets of sessions."""
    old, new = ({one[:3]: one.end for one in each} for each in (before, after))
    spans = []
    for key in old.keys() | new.keys():
        ends = [ends[key] for ends in (old, new) if key in ends]
        if len(ends) == 1:
            spans.append((key[2], ends[0]))
        elif ends[0] != ends[1]:
            spans.append((min(ends), max(ends)))
    return touched(spans)


def incomplete(made_of: Iterable[tuple[str, str]], there: Collection[str]) -> set[str]:
    """The days with a file that is gone. ``made_of`` has days and the files that their tables were made of, ``there``
    are the files of the journal."""
    return {day for day, path in made_of if path not in there}


class Past:
    """Tells which days can be computed again. ``left`` are those that were asked for and cannot."""

    def __init__(self, spark: SparkSession, kept: store.Store, source: Journal) -> None:
        self._spark = spark
        self._kept = kept
        self._days = set(source.days)
        self._there = {one.path for one in source.files}
        self.left: set[str] = set()

    def complete(self, days: Iterable[str], there: Collection[str] | None = None) -> set[str]:
        """Those of some days of which no record is gone. ``there`` are the files in and beside them, by default those
        that the journal had when it was looked at."""
        asked = set(days)
        known = asked & self._days & self._kept.days(FILES)
        made_of = store.read(self._spark, self._kept.folder, FILES, known, None)
        rows = [] if made_of is None else made_of.select(F.col("day").cast("string"), "path").collect()
        found = incomplete(((day, path) for day, path in rows), self._there if there is None else there)
        gone = (asked - self._days) | found
        self.left |= gone
        return asked - gone


def files_of(
    spark: SparkSession,
    source: Journal,
    obs: DataFrame,
    days: Collection[str] | None,
    margin: datetime.timedelta = MARGIN,
) -> DataFrame:
    """What is to be kept as `FILES` when these days, or all, are computed from these rows and those around them."""
    wanted = set(source.days if days is None else days)
    us = F.unix_micros("ts")
    found = obs.groupBy(F.col("_metadata.file_path").alias("uri")).agg(F.min(us).alias("low"), F.max(us).alias("high"))
    rows = [
        {"path": path_of(row.uri), "day": day}
        for row in found.collect()
        for day in sorted(touched([(row.low, row.high)], margin) & wanted)
    ]
    names = pa.schema([("path", pa.string()), ("day", pa.string())])
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=names))


def path_of(uri: str) -> str:
    """The path below the journal of a file with records, from its URI, in which some characters are encoded."""
    return f"{layout.OBS}/{unquote(uri).rpartition(f'/{layout.OBS}/')[2]}"


def stretches_in(sessions: DataFrame | None) -> list[Stretch]:
    """The rows of sessions."""
    if sessions is None:
        return []
    times = (F.unix_micros("start_ts"), F.unix_micros("end_ts"))
    found = sessions.select("host", "journal_id", *times, "socket_drops", "tap_gaps", "version")
    return [Stretch(*row) for row in found.collect()]


def sessions_frame(spark: SparkSession, stretches: Iterable[Stretch]) -> DataFrame:
    """Rows of sessions, as a frame."""
    columns = list(zip(*stretches, strict=True)) or [()] * len(journal_schema.SESSIONS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, journal_schema.SESSIONS, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=journal_schema.SESSIONS))
