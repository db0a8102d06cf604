"""Table `liveness`: who fell silent, for whom, and whether it was the source, the receiver or the whole machine.

Law: a silence is the time between two messages of a source that follow each other at a receiver (``host``), or at
whichever receiver (``host`` null), when it is longer than the source's rhythm on that day explains. Of a source that
sends heartbeats that is `PATIENCE` times the median distance of its heartbeats, at least 5 s; of another 20 times its
mean distance, at least a minute. The receiver that heard most of a source says what its rhythm is; who has sent too
few messages on a day for one is not watched.

``gap`` is a silence that ended, ``open`` one that had not when the data end; a silence that the receiver did not
record longer than the rhythm explains is ``host_down``: nobody knows. Without a receiver, ``host_down`` says that all
sources of the sending machine, at least two, fell silent together; times in which no receiver of a source was recording
are nobody's silence. Every receiver's times are by its own clock, put right where it is
wrong (clocks.py). A silence belongs to the day on which it began.

What is kept of a day (`state`) is small: for each source and receiver the first and the last moment, and the silences
between them. All days together give the table, in whatever order they came.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bccnd.pipeline.runs import ARRIVED, NAMELESS

#: those of the verdicts in ARRIVED that are not copies of another row
ONCE: Final = ("accepted", "reordered", "restart", "not_addressed")

#: heartbeats that may be missed, and half of one for delays: the daemon's dead_after is 3
PATIENCE: Final = 3.5
#: microseconds; a silence that is not longer is none, and messages closer to each other are seen as one
BUCKET: Final = 5_000_000
#: of a source without heartbeats: microseconds, times its mean distance, and the messages that make a rhythm
ANY_LEAST: Final = 60_000_000
ANY_TIMES: Final = 20
ANY_MESSAGES: Final = 10
#: distances of heartbeats that make a rhythm
BEAT_DISTANCES: Final = 2

#: rows that are kept of a day. ``what``: heard (``host`` null: by anybody), gap, or journal, whose name ``src`` is then
STATE: Final = (
    "day string, what string, host string, src string, from_us bigint, to_us bigint, patience bigint, basis string"
)
_SILENCE: Final = pa.schema(
    [
        ("host", pa.string()),
        ("src", pa.string()),
        ("from_us", pa.int64()),
        ("to_us", pa.int64()),
        ("kind", pa.string()),
        ("basis", pa.string()),
    ]
)


def buckets(obs: DataFrame) -> DataFrame:
    """Rows of whole days, condensed to pieces of `BUCKET`: first and last moment, and how many messages."""
    heard = F.col("verdict").isin(*ARRIVED) & (F.col("src") != NAMELESS)
    us = F.unix_micros("ts")
    return (
        obs.select(
            F.to_date("ts").alias("date"),
            "host",
            "journal_id",
            F.when(heard, F.col("src")).alias("src"),
            us.alias("us"),
            F.expr(f"unix_micros(ts) div {BUCKET}").alias("bucket"),
            F.col("verdict").isin(*ONCE).cast("bigint").alias("once"),
        )
        .groupBy("date", "host", "journal_id", "src", "bucket")
        .agg(F.min("us").alias("first"), F.max("us").alias("last"), F.sum("once").alias("n"), F.count("*").alias("all"))
    )


def rhythms(obs: DataFrame, pieces: DataFrame) -> DataFrame:
    """What every source must keep up on each day: date, src, patience (microseconds), basis."""
    totals = (
        pieces.where(F.col("src").isNotNull())
        .groupBy("date", "host", "src")
        .agg(
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.sum("n").alias("n"),
            F.sum("all").alias("all"),
        )
    )
    # The receiver that heard most of it knows its pace best; its own host hears it as its own broadcasts only.
    order = F.struct("n", "all", "host")
    pace = (
        totals.groupBy("date", "src")
        .agg(
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.max("n").alias("n"),
            F.max("all").alias("all"),
            F.max(order)["host"].alias("host"),
        )
        .withColumn("n", F.when(F.col("n") > 0, F.col("n")).otherwise(F.col("all")))
    )
    beats = (
        obs.where(F.col("verdict").isin(*ONCE, "looped") & (F.col("src") != NAMELESS))
        .where(F.col("chan").startswith("heartbeat/") & (F.col("chan") == F.concat(F.lit("heartbeat/"), F.col("src"))))
        .select(F.to_date("ts").alias("date"), "host", "src", "seq_key", F.unix_micros("ts").alias("us"))
        .join(F.broadcast(pace.select("date", "src", "host")), ["date", "src", "host"])
        .groupBy("date", "src", "seq_key")
        .agg(F.min("us").alias("us"))
    )
    before = Window.partitionBy("date", "src").orderBy("us")
    # To the millisecond: a median of what differs by delays alone need not keep every one of them.
    distances = beats.withColumn("ms", F.floor((F.col("us") - F.lag("us").over(before)) / 1000)).where("ms IS NOT NULL")
    regular = (
        distances.groupBy("date", "src")
        .agg(F.percentile("ms", F.lit(0.5)).alias("ms"), F.count("*").alias("distances"))
        .where(F.col("distances") >= BEAT_DISTANCES)
        .select("date", "src", F.floor(F.col("ms") * (1000 * PATIENCE)).cast("bigint").alias("beat"))
    )
    mean = (F.col("last") - F.col("first")) / (F.col("n") - 1)
    usual = F.when(F.col("n") >= ANY_MESSAGES, F.greatest(F.lit(ANY_LEAST), F.floor(mean * ANY_TIMES).cast("bigint")))
    return pace.join(regular, ["date", "src"], "left").select(
        "date",
        "src",
        F.coalesce(F.greatest(F.col("beat"), F.when(F.col("beat").isNotNull(), F.lit(BUCKET))), usual).alias(
            "patience"
        ),
        F.when(F.col("beat").isNotNull(), "heartbeat").otherwise("any").alias("basis"),
    )


def state(pieces: DataFrame, kept_up: DataFrame) -> DataFrame:
    """What is to be kept of days, from their `buckets` and `rhythms`. ``day`` is a string."""
    heard = pieces.where(F.col("src").isNotNull())
    anybody = heard.groupBy("date", "src", "bucket").agg(F.min("first").alias("first"), F.max("last").alias("last"))
    columns = ("date", "host", "src", "first", "last")
    all_pieces = heard.select(*columns).unionByName(
        anybody.withColumn("host", F.lit(None).cast("string")).select(*columns)
    )
    one = Window.partitionBy("date", "host", "src")
    # A journal may begin within a piece, which is there twice then; so it is not the piece before that counts.
    earlier = one.orderBy("first").rowsBetween(Window.unboundedPreceding, -1)
    # Where nothing comes before a piece, the day begins.
    marked = (
        all_pieces.withColumn("before", F.max("last").over(earlier))
        .withColumn("end", F.max("last").over(one))
        .where(F.col("before").isNull() | (F.col("first") - F.col("before") > BUCKET))
        .join(kept_up, ["date", "src"])
    )
    day = F.col("date").cast("string").alias("day")
    begins = F.col("before").isNull()
    sources = marked.where(begins | (F.col("first") - F.col("before") > F.col("patience"))).select(
        day,
        F.when(begins, "heard").otherwise("gap").alias("what"),
        "host",
        "src",
        F.when(begins, F.col("first")).otherwise(F.col("before")).alias("from_us"),
        F.when(begins, F.col("end")).otherwise(F.col("first")).alias("to_us"),
        "patience",
        "basis",
    )
    journals = (
        pieces.groupBy("date", "host", "journal_id")
        .agg(F.min("first").alias("from_us"), F.max("last").alias("to_us"))
        .select(
            day,
            F.lit("journal").alias("what"),
            "host",
            F.col("journal_id").alias("src"),
            "from_us",
            "to_us",
            F.lit(None).cast("bigint").alias("patience"),
            F.lit(None).cast("string").alias("basis"),
        )
    )
    return sources.unionByName(journals)


def liveness(kept: DataFrame, sessions: DataFrame) -> DataFrame:
    """The table, with ``day``, from what was kept of all days and the rows of sessions; these, one for each stretch of
    recording, are gathered at once, what was kept is gone through machine by machine."""
    told: dict[tuple[str, str], list[tuple[int, int]]] = {}
    begin_end = (F.unix_micros("start_ts").alias("begin"), F.unix_micros("end_ts").alias("end"))
    for row in sessions.select("host", "journal_id", *begin_end).collect():
        told.setdefault((row.host, row.journal_id), []).append((row.begin, row.end))
    journals = (
        kept.where("what = 'journal'")
        .groupBy("host", "src")
        .agg(F.min("from_us").alias("begin"), F.max("to_us").alias("end"))
        .collect()
    )
    recorded = Recorded(told, {(row.host, row.src): (row.begin, row.end) for row in journals})

    def judge(rows: pa.Table) -> pa.Table:
        kept = [Kept(*row.values()) for row in rows.select(list(Kept._fields)).to_pylist()]
        return pa.Table.from_pylist([each._asdict() for each in silences(kept, recorded)], schema=_SILENCE)

    return (
        kept.where("what <> 'journal'")
        .groupBy(F.substring_index("src", "/", 1))
        .applyInArrow(judge, "host string, src string, from_us bigint, to_us bigint, kind string, basis string")
        .select(
            "host",
            "src",
            F.timestamp_micros("from_us").alias("from_ts"),
            F.timestamp_micros("to_us").alias("to_ts"),
            "kind",
            "basis",
            F.to_date(F.timestamp_micros("from_us")).alias("day"),
        )
    )


# -- from here on without Spark


class Kept(NamedTuple):
    """A row of what is kept, of a source."""

    day: str
    what: str
    host: str | None
    src: str
    from_us: int
    to_us: int
    #: None: no rhythm
    patience: int | None
    basis: str


class Silent(NamedTuple):
    """A row of the table; times in microseconds."""

    host: str | None
    src: str
    from_us: int
    to_us: int | None
    kind: str
    basis: str


class Silence(NamedTuple):
    """A silence, in microseconds; ``until`` is its end, or that of the data, where it has none."""

    src: str
    start: int
    until: int
    patience: int
    basis: str = "heartbeat"
    ended: bool = True


class Recorded:
    """When receivers were recording. A journal whose sessions are lost counts from its first row to its last.

    ``told``: (host, journal) -> its sessions; ``rows``: (host, journal) -> its first and its last row."""

    def __init__(
        self, told: Mapping[tuple[str, str], Sequence[tuple[int, int]]], rows: Mapping[tuple[str, str], tuple[int, int]]
    ) -> None:
        spans: dict[str, list[tuple[int, int]]] = {}
        for (host, _), of_journal in told.items():
            spans.setdefault(host, []).extend(of_journal)
        for journal, whole in rows.items():
            if journal not in told:
                spans.setdefault(journal[0], []).append(whole)
        self._spans = {host: joined(of_host) for host, of_host in spans.items()}
        self._ends = {host: of_host[-1][1] for host, of_host in self._spans.items()}
        for (host, _), (_, last) in rows.items():
            self._ends[host] = max(last, self._ends.get(host, last))
        self._last = max(self._ends.values(), default=0)

    def end(self, host: str | None) -> int:
        """Where the data of a receiver end, or of all."""
        return self._last if host is None else self._ends.get(host, 0)

    def within(self, host: str, start: int, until: int) -> int:
        """For how long a receiver was recording in a time."""
        spans = self._spans.get(host, [])
        first = max(0, bisect_right(spans, (start, start)) - 1)
        total = 0
        for begin, end in spans[first:]:
            if begin >= until:
                break
            total += max(0, min(end, until) - max(begin, start))
        return total


def joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same times, in order and without overlaps."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def silences(kept: Sequence[Kept], recorded: Recorded) -> list[Silent]:
    """The rows of the table for the sources of one machine, from all that was kept of them."""
    found: list[Silent] = []
    everywhere: list[Silence] = []
    hearers: dict[str, set[str]] = {}
    born: dict[str, tuple[int, int]] = {}
    by_pair: dict[tuple[str | None, str], list[Kept]] = {}
    for row in kept:
        by_pair.setdefault((row.host, row.src), []).append(row)
        if row.host is not None:
            hearers.setdefault(row.src, set()).add(row.host)
        elif row.what == "heard" and row.patience is not None:
            first, patience = born.get(row.src, (row.from_us, 0))
            born[row.src] = (min(first, row.from_us), max(patience, row.patience))
    for (host, src), rows in by_pair.items():
        for one in _of_pair(src, rows, recorded.end(host)):
            watching = [host] if host is not None else hearers.get(src, set())
            known = any(recorded.within(each, one.start, one.until) > one.patience for each in watching)
            if host is not None:
                kind = _kind(one) if known else "host_down"
                found.append(Silent(host, src, one.start, one.until if one.ended else None, kind, one.basis))
            elif known:
                everywhere.append(one)
    for one, together in zip(everywhere, fell_together(born, everywhere), strict=True):
        kind = "host_down" if together else _kind(one)
        found.append(Silent(None, one.src, one.start, one.until if one.ended else None, kind, one.basis))
    return found


def _kind(one: Silence) -> str:
    return "gap" if one.ended else "open"


def _of_pair(src: str, rows: Sequence[Kept], end: int) -> Iterator[Silence]:
    """The silences of a source at one receiver, or at all: those within days, those between them, and the last."""
    heard = sorted(row for row in rows if row.what == "heard")
    for row in rows:
        if row.what == "gap" and row.patience is not None:
            yield Silence(src, row.from_us, row.to_us, row.patience, row.basis)
    for number, row in enumerate(heard):
        ended = number + 1 < len(heard)
        until = heard[number + 1].from_us if ended else end
        if row.patience is not None and until - row.to_us > row.patience:
            yield Silence(src, row.to_us, until, row.patience, row.basis, ended)


def fell_together(born: Mapping[str, tuple[int, int]], silences: Sequence[Silence]) -> list[bool]:
    """For each silence of a source of one machine, whether the machine fell silent: whether every other of its sources
    that was alive fell silent at the same time, and there was one. ``born`` says of each source when it was first
    heard, and how long it may be silent; who may be silent longer than a silence lasts says nothing about it."""
    of: dict[str, list[Silence]] = {}
    for one in sorted(silences, key=lambda each: each.start):
        of.setdefault(one.src, []).append(one)
    starts = {src: [one.start for one in its] for src, its in of.items()}

    def companion(one: Silence, src: str) -> bool | None:
        """Whether another source fell silent with it, or spoke on; None where it was not alive or says nothing."""
        first, patience = born[src]
        if first > one.start or patience >= one.until - one.start:
            return None
        its = of.get(src, [])
        reach = max(one.patience, patience)
        for other in its[bisect_left(starts.get(src, []), one.start - reach) :]:
            if other.start > one.start + reach:
                break
            if abs(other.start - one.start) <= max(one.patience, other.patience) and other.until > one.start:
                return True
        silent = any(other.start <= one.start < other.until for other in its)
        return None if silent else False

    found = []
    for one in silences:
        others = [companion(one, src) for src in born if src != one.src]
        found.append(True in others and False not in others)
    return found
