"""Table `liveness`: which sources fell silent, at which receivers, and whether it was the source, the receiver or the
whole machine.

A silence is the time between two messages of a source that follow each other at a receiver (``host``), or at any
receiver (``host`` null), when it is longer than the source's rhythm on that day explains. Of a source that sends
heartbeats that is `PATIENCE` times the median distance of its heartbeats, at least 5 s; of another 20 times its mean
distance, at least a minute. The receiver with most messages of a source gives its rhythm; a source with too few
messages on a day for one is not watched.

``gap`` is a silence that ended, ``open`` one that had not when the data end. One in which the receiver was not
recording for longer than the rhythm explains is ``host_down``: the source may have sent. Without a receiver, that kind
means that all sources of the sending machine, at least two, fell silent together; times in which no receiver of a
source was recording count as no silence. Every receiver's times are by its own clock, corrected where it is wrong
(clocks.py). A silence belongs to the day on which it began.

What is kept of a day (`kept`) is small: for each source and receiver the first and the last moment, and the silences
between them. All days together give the table, in whatever order they came.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bccnd.pipeline.records import task_records
from bccnd.pipeline.records.row_batch import grouped
from bccnd.pipeline.records.time_spans import joined, overlap
from bccnd.pipeline.scanning.scan_records import QUIET
from bccnd.pipeline.tables import schema

#: heartbeats that may be missed, and half of one for delays: the daemon's dead_after is 3
PATIENCE: Final = 3.5
#: of a source without heartbeats: microseconds, times its mean distance, and the messages that make a rhythm
ANY_LEAST: Final = 60_000_000
ANY_TIMES: Final = 20
ANY_MESSAGES: Final = 10
#: distances of heartbeats that make a rhythm
BEAT_DISTANCES: Final = 2

_KEPT: Final = StructType([StructField("day", StringType()), *schema.HEARD])
_LIVENESS: Final = schema.TABLES["liveness"]

Spans = list[tuple[int, int]]


def kept(records: DataFrame, receivers: DataFrame, tasks: int) -> DataFrame:
    """Condense days to what is kept of them, in so many tasks, from records `heard` and `beats` and from `receiver`
    (`task_records.KINDS`)."""

    def condense(table: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([row._asdict() for row in condensed(table)], schema=to_arrow_schema(_KEPT))

    sources = (
        records.where("kind IN ('heard', 'beats')")
        .groupBy(F.pmod(F.xxhash64("src"), F.lit(tasks)))
        .applyInArrow(condense, _KEPT)
    )
    journals = receivers.groupBy("day", "host", "journal_id").agg(
        F.min("from_us").alias("from_us"), F.max("to_us").alias("to_us")
    )
    return sources.unionByName(
        journals.withColumnRenamed("journal_id", "src").withColumn("what", F.lit("journal")), allowMissingColumns=True
    )


def liveness(kept: DataFrame, sessions: Iterable[tuple[str, str, int, int]]) -> DataFrame:
    """Compute the table, machine by machine, from what was kept of all days and the sessions (host, journal, begin,
    end) of receivers."""
    by_journal: dict[tuple[str, str], Spans] = defaultdict(list)
    for host, journal, begin, end in sessions:
        by_journal[host, journal].append((begin, end))
    journals = (
        kept.where("what = 'journal'")
        .groupBy("host", "src")
        .agg(F.min("from_us").alias("begin"), F.max("to_us").alias("end"))
        .collect()
    )
    recorded = Recorded(by_journal, {(row.host, row.src): (row.begin, row.end) for row in journals})

    def find(of_machine: pa.Table) -> pa.Table:
        rows = silences([Kept(**row) for row in of_machine.to_pylist()], recorded)
        return pa.Table.from_pylist(rows, schema=to_arrow_schema(_LIVENESS, timezone="UTC"))

    fields = [name for name in Kept._fields if name in kept.columns]
    machines = kept.where("what <> 'journal'").select(*fields).groupBy(F.substring_index("src", "/", 1))
    return machines.applyInArrow(find, _LIVENESS).withColumn("day", F.to_date("from_ts"))


# -- from here on without Spark


class Kept(NamedTuple):
    """A row of what is kept, of a source: the time in which it was received (`heard`), or a `gap` in it.

    Of days that are only carried: the last of these times, and what the silence behind it counts as, for all receivers
    together (``verdict``); or, `born`, when the source was received first, and how long it may be silent at most.
    """

    day: str
    what: str
    host: str | None
    src: str
    from_us: int
    to_us: int
    #: None: no rhythm
    patience: int | None
    basis: str
    verdict: str | None = None


class Reception(NamedTuple):
    """A time in which a receiver received a source without a pause, with the messages that are no copies, and rows."""

    host: str
    first: int
    last: int
    once: int
    rows: int


def condensed(records: pa.Table) -> Iterator[Kept]:
    """Condense records `heard` and `beats` of sources to what is kept: by source and day, when each receiver, and any
    (None), received it first and last, and the silences between these."""
    receptions: dict[tuple[str, str], list[Reception]] = defaultdict(list)
    beats: dict[tuple[str, str], dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for row in task_records.fields_of(records, "heard").to_pylist():
        receptions[row.pop("day"), row.pop("src")].append(Reception(**row))
    for row in task_records.fields_of(records, "beats").to_pylist():
        beats[row["day"], row["src"]][row["host"]].append(row["data"])
    for (day, src), of_source in receptions.items():
        patience, basis = rhythm(of_source, beats[day, src])
        for host in (None, *dict.fromkeys(reception.host for reception in of_source)):
            heard = joined([(first, last) for receiver, first, last, *_ in of_source if host in (None, receiver)])
            yield Kept(day, "heard", host, src, heard[0][0], heard[-1][1], patience, basis)
            for (_, before), (first, _) in pairwise(heard):
                if patience is not None and first - before > patience:
                    yield Kept(day, "gap", host, src, before, first, patience, basis)


def rhythm(receptions: Sequence[Reception], beats: Mapping[str, Sequence[bytes]]) -> tuple[int | None, str]:
    """Return for how long a source may be silent on a day, in microseconds, and the basis of that. The receiver with
    most of its messages gives its pace; the source's own host has only its own broadcasts."""
    sums: dict[str, tuple[int, int]] = {}
    for reception in receptions:
        once, rows = sums.get(reception.host, (0, 0))
        sums[reception.host] = once + reception.once, rows + reception.rows
    best = max(sums, key=lambda host: (*sums[host], host))
    if best in beats:
        keys, times = np.concatenate([np.frombuffer(data, "<i8").reshape(2, -1) for data in beats[best]], axis=1)
        ordered = np.sort(grouped(keys).reduce(np.minimum, times))
        distances = np.diff(ordered) // 1000
        if len(distances) >= BEAT_DISTANCES:
            return max(int(np.median(distances) * 1000 * PATIENCE), QUIET), "heartbeat"
    messages = max(once for once, _ in sums.values()) or max(rows for _, rows in sums.values())
    if messages < ANY_MESSAGES:
        return None, "any"
    first, last = min(reception.first for reception in receptions), max(reception.last for reception in receptions)
    return max(ANY_LEAST, int((last - first) / (messages - 1) * ANY_TIMES)), "any"


class Silence(NamedTuple):
    """A silence, in microseconds; ``until`` is its end, or that of the data if it has not ended."""

    src: str
    start: int
    until: int
    patience: int
    basis: str = "heartbeat"
    ended: bool = True
    #: what it counts as for all receivers together, if that is known
    verdict: str | None = None

    def row(self, host: str | None, *, down: bool) -> dict[str, Any]:
        """Return the row of the table; ``down`` if the source's machine or the receiver was off."""
        until, kind = (self.until, "gap") if self.ended else (None, "open")
        times = {"from_ts": self.start, "to_ts": until}
        return {"host": host, "src": self.src, **times, "kind": "host_down" if down else kind, "basis": self.basis}


class Recorded:
    """The times in which receivers were recording. A journal whose sessions are lost counts from its first row to its
    last.

    ``sessions``: (host, journal) -> its sessions; ``rows``: (host, journal) -> its first and its last row."""

    def __init__(
        self, sessions: Mapping[tuple[str, str], Spans], rows: Mapping[tuple[str, str], tuple[int, int]]
    ) -> None:
        spans: dict[str, Spans] = defaultdict(list)
        for (host, _), of_journal in sessions.items():
            spans[host] += of_journal
        for journal, whole in rows.items():
            if journal not in sessions:
                spans[journal[0]].append(whole)
        self._spans = {host: joined(of_host) for host, of_host in spans.items()}
        self._ends = {host: of_host[-1][1] for host, of_host in self._spans.items()}
        for (host, _), (_, last) in rows.items():
            self._ends[host] = max(last, self._ends.get(host, last))

    def end(self, host: str | None) -> int:
        """Return where the data of a receiver end, or of all."""
        return max(self._ends.values(), default=0) if host is None else self._ends.get(host, 0)

    def within(self, host: str, start: int, until: int) -> int:
        """Return for how long a receiver was recording in a time."""
        return overlap(self._spans.get(host, []), start, until)


def silences(kept: Sequence[Kept], recorded: Recorded) -> list[dict[str, Any]]:
    """Return the rows of the table for the sources of one machine, from all that was kept of them."""
    table: list[dict[str, Any]] = []
    everywhere: list[Silence] = []
    receivers: dict[str, set[str]] = defaultdict(set)
    born: dict[str, tuple[int, int]] = {}
    by_pair: dict[tuple[str | None, str], list[Kept]] = defaultdict(list)
    for row in kept:
        if row.what != "born":
            by_pair[row.host, row.src].append(row)
        if row.host is not None:
            receivers[row.src].add(row.host)
        elif row.what != "gap" and row.patience is not None:
            first, patience = born.get(row.src, (row.from_us, 0))
            born[row.src] = (min(first, row.from_us), max(patience, row.patience))
    for (host, src), rows in by_pair.items():
        for silence in _of_pair(src, rows, recorded.end(host)):
            was_watched = any(
                recorded.within(receiver, silence.start, silence.until) > silence.patience
                for receiver in (receivers[src] if host is None else {host})
            )
            if host is not None:
                table.append(silence.row(host, down=not was_watched))
            elif was_watched or silence.verdict is not None:
                everywhere.append(silence)
    together = fell_together({src: born[src] for src in born if (None, src) in by_pair}, everywhere)
    for silence, machine_fell in zip(everywhere, together, strict=True):
        down = machine_fell if silence.verdict is None else silence.verdict == "host_down"
        table.append(silence.row(None, down=down))
    return table


def _of_pair(src: str, rows: Sequence[Kept], end: int) -> Iterator[Silence]:
    """Yield the silences of a source at one receiver, or at all: within days, between days, and the last."""
    received = sorted((row for row in rows if row.what == "heard"), key=lambda row: (row.day, row.from_us))
    for row in rows:
        if row.what == "gap" and row.patience is not None:
            yield Silence(src, row.from_us, row.to_us, row.patience, row.basis)
    for row, following in zip_longest(received, received[1:]):
        until = following.from_us if following else end
        if row.patience is not None and until - row.to_us > row.patience:
            yield Silence(src, row.to_us, until, row.patience, row.basis, following is not None, row.verdict)


def fell_together(born: Mapping[str, tuple[int, int]], silences: Sequence[Silence]) -> list[bool]:
    """Return for each silence of a source of one machine whether the machine fell silent: whether there were other
    sources alive, and all of them fell silent at the same time. ``born`` has for each source when it was first
    received, and how long it may be silent; one that may be silent for longer than a silence lasts proves nothing."""
    by_source: dict[str, list[Silence]] = defaultdict(list)
    for silence in sorted(silences, key=attrgetter("start")):
        by_source[silence.src].append(silence)

    def fell_too(silence: Silence, src: str) -> bool | None:
        """Return whether another source fell silent with it, or kept sending; None if it was not alive or proves
        nothing."""
        first, patience = born[src]
        if first > silence.start or patience >= silence.until - silence.start:
            return None
        start, of_source = silence.start, by_source[src]
        reach = max(silence.patience, patience)
        for candidate in of_source[bisect_left(of_source, start - reach, key=attrgetter("start")) :]:
            if candidate.start > start + reach:
                break
            if abs(candidate.start - start) <= max(silence.patience, candidate.patience) and candidate.until > start:
                return True
        return None if any(candidate.start <= start < candidate.until for candidate in of_source) else False

    answers = [{fell_too(silence, src) for src in born if src != silence.src} for silence in silences]
    return [True in answer and False not in answer for answer in answers]
