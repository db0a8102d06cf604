"""Table `liveness`: which sources fell silent, at which receivers, and whether it was the source, the receiver or the
whole machine.

A silence is the time between two messages of a source that follow each other at a receiver (``host``), or at any
receiver (``host`` null), when it is longer than the source's rhythm on that day explains. Of a source that sends
heartbeats that is `PATIENCE` times the median distance of its heartbeats, at least 5 s; of another 20 times its mean
distance, at least a minute. The receiver that heard most of a source gives its rhythm; a source with too few messages
on a day for one is not watched.

``gap`` is a silence that ended, ``open`` one that had not when the data end. One in which the receiver was not
recording for longer than the rhythm explains is ``host_down``: nothing is known of it. Without a receiver, that kind
means that all sources of the sending machine, at least two, fell silent together; times in which no receiver of a
source was recording count as no silence. Every receiver's times are by its own clock, put right where it is wrong
(clocks.py). A silence belongs to the day on which it began.

What is kept of a day (`kept`) is small: for each source and receiver the first and the last moment, and the silences
between them. All days together give the table, in whatever order they came.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from bccnd.pipeline import task_records
from bccnd.pipeline.epoch_alignment import joined
from bccnd.pipeline.row_batch import grouped
from bccnd.pipeline.scan_records import QUIET

#: heartbeats that may be missed, and half of one for delays: the daemon's dead_after is 3
PATIENCE: Final = 3.5
#: of a source without heartbeats: microseconds, times its mean distance, and the messages that make a rhythm
ANY_LEAST: Final = 60_000_000
ANY_TIMES: Final = 20
ANY_MESSAGES: Final = 10
#: distances of heartbeats that make a rhythm
BEAT_DISTANCES: Final = 2

_KEPT: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("day", "what", "host", "src")),
        *((name, pa.int64()) for name in ("from_us", "to_us", "patience")),
        ("basis", pa.string()),
    ]
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


def kept(records: DataFrame, receivers: DataFrame, tasks: int) -> DataFrame:
    """What is to be kept of days, from the records heard and beats and from receivers (`task_records.KINDS`); sources are gone
    through in so many tasks."""

    def condense(table: pa.Table) -> pa.Table:
        return _table(condensed(table), _KEPT)

    sources = (
        records.where("kind IN ('heard', 'beats')")
        .groupBy(F.pmod(F.xxhash64("src"), F.lit(tasks)))
        .applyInArrow(condense, from_arrow_schema(_KEPT))
    )
    journals = receivers.groupBy("day", "host", "journal_id").agg(
        F.min("from_us").alias("from_us"), F.max("to_us").alias("to_us")
    )
    return sources.unionByName(
        journals.withColumnRenamed("journal_id", "src").withColumn("what", F.lit("journal")), allowMissingColumns=True
    )


def liveness(kept: DataFrame, sessions: Iterable[tuple[str, str, int, int]]) -> DataFrame:
    """The table, from what was kept of all days and the sessions (host, journal, begin, end) of receivers; what was
    kept is gone through machine by machine."""
    known: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for host, journal, begin, end in sessions:
        known.setdefault((host, journal), []).append((begin, end))
    journals = (
        kept.where("what = 'journal'")
        .groupBy("host", "src")
        .agg(F.min("from_us").alias("begin"), F.max("to_us").alias("end"))
        .collect()
    )
    recorded = Recorded(known, {(row.host, row.src): (row.begin, row.end) for row in journals})

    def judge(rows: pa.Table) -> pa.Table:
        return _table(
            silences([Kept(*row.values()) for row in rows.select(list(Kept._fields)).to_pylist()], recorded), _SILENCE
        )

    return (
        kept.where("what <> 'journal'")
        .groupBy(F.substring_index("src", "/", 1))
        .applyInArrow(judge, from_arrow_schema(_SILENCE))
        .withColumn("from_ts", F.timestamp_micros("from_us"))
        .withColumn("to_ts", F.timestamp_micros("to_us"))
        .withColumn("day", F.to_date("from_ts"))
    )


def _table(rows: Iterable[NamedTuple], shape: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([one._asdict() for one in rows], schema=shape)


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


class Heard(NamedTuple):
    """From when to when a receiver heard a source without a pause, how many messages that are no copies, and rows."""

    host: str
    first: int
    last: int
    once: int
    rows: int


def condensed(records: pa.Table) -> Iterator[Kept]:
    """What is kept of sources, from their records of heard and beats."""
    heard: dict[tuple[str, str], list[Heard]] = {}
    beats: dict[tuple[str, str], dict[str, list[bytes]]] = {}
    for row in task_records.fields_of(records, "heard").to_pylist():
        heard.setdefault((row.pop("day"), row.pop("src")), []).append(Heard(**row))
    for row in task_records.fields_of(records, "beats").to_pylist():
        beats.setdefault((row["day"], row["src"]), {}).setdefault(row["host"], []).append(row["data"])
    for (day, src), its in heard.items():
        yield from _kept(day, src, its, beats.get((day, src), {}))


def _kept(day: str, src: str, heard: Sequence[Heard], beats: Mapping[str, Sequence[bytes]]) -> Iterator[Kept]:
    """What is kept of a source on a day: when each receiver, and any (None), heard it first and last, and the silences
    between these."""
    patience, basis = rhythm(heard, beats)
    for host in (None, *dict.fromkeys(one.host for one in heard)):
        mine = sorted((one.first, one.last) for one in heard if host is None or one.host == host)
        end = max(last for _, last in mine)
        yield Kept(day, "heard", host, src, mine[0][0], end, patience, basis)
        if patience is None:
            continue
        before = mine[0][1]
        for first, last in mine:
            if first - before > patience:
                yield Kept(day, "gap", host, src, before, first, patience, basis)
            before = max(before, last)


def rhythm(heard: Sequence[Heard], beats: Mapping[str, Sequence[bytes]]) -> tuple[int | None, str]:
    """For how long a source may be silent on a day, in microseconds, and by what that is known. The receiver that heard
    most of it knows its pace best; its own host hears it as its own broadcasts only."""
    sums: dict[str, tuple[int, int]] = {}
    for one in heard:
        once, every = sums.get(one.host, (0, 0))
        sums[one.host] = once + one.once, every + one.rows
    best = max(sums, key=lambda host: (*sums[host], host))
    if best in beats:
        keys, times = np.concatenate([np.frombuffer(each, "<i8").reshape(2, -1) for each in beats[best]], axis=1)
        ordered = np.sort(grouped(keys).reduce(np.minimum, times))
        distances = np.diff(ordered) // 1000
        if len(distances) >= BEAT_DISTANCES:
            return max(int(np.median(distances) * 1000 * PATIENCE), QUIET), "heartbeat"
    messages = max(once for once, _ in sums.values()) or max(every for _, every in sums.values())
    if messages < ANY_MESSAGES:
        return None, "any"
    mean = (max(one.last for one in heard) - min(one.first for one in heard)) / (messages - 1)
    return max(ANY_LEAST, int(mean * ANY_TIMES)), "any"


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

    ``sessions``: (host, journal) -> its sessions; ``rows``: (host, journal) -> its first and its last row."""

    def __init__(
        self,
        sessions: Mapping[tuple[str, str], Sequence[tuple[int, int]]],
        rows: Mapping[tuple[str, str], tuple[int, int]],
    ) -> None:
        spans: dict[str, list[tuple[int, int]]] = {}
        for (host, _), of_journal in sessions.items():
            spans.setdefault(host, []).extend(of_journal)
        for journal, whole in rows.items():
            if journal not in sessions:
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
    for (host, src), its in by_pair.items():
        for one in _of_pair(src, its, recorded.end(host)):
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
    heard, and how long it may be silent; one that may be silent for longer than a silence lasts proves nothing."""
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
