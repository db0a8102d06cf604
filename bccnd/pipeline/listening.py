"""When a receiver was listening, and whom it can hear at all.

Law: a receiver listens while one of its sessions lasts, by its own clock (clocks.py); where the session of a journal is
not known, from the journal's first row of a day to its last. It can hear a source if it has ever, that day, recorded
anything from a segment on which anybody heard that source; one that recorded nothing at all is not deaf by its place,
so it can hear everybody.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline import masks
from bccnd.pipeline.runs import DAY, MINUTE
from bccnd.pipeline.tables.host_dim import Dims
from bccnd.pipeline.tables.liveness import joined

_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()


class Session(NamedTuple):
    """A stretch of time in which a receiver was listening, by its own clock; both ends belong to it."""

    host: str
    journal_id: str
    start: int
    end: int


class Interval(NamedTuple):
    """A stretch of a day on the common clock in which the same receivers were listening; ``end`` is no more part."""

    day: str
    start: int
    end: int
    bits: frozenset[int]


def start_of(day: str) -> int:
    """When a day begins, in microseconds since 1970."""
    return (datetime.date.fromisoformat(day).toordinal() - _EPOCH) * DAY


def sessions_of(sessions: DataFrame) -> list[Session]:
    """The sessions in a frame."""
    rows = sessions.select(
        "host", "journal_id", F.unix_micros("start_ts").alias("start"), F.unix_micros("end_ts").alias("end")
    ).collect()
    return sorted(Session(*row) for row in rows)


def hosts_on(sessions: Collection[Session], day: str) -> set[str]:
    """The hosts with a session that overlaps a day."""
    start = start_of(day)
    return {session.host for session in sessions if session.start < start + DAY and session.end >= start}


def recorded(
    sessions: Collection[Session], journals: Iterable[tuple[str, str, int, int]]
) -> dict[str, list[tuple[int, int]]]:
    """When each receiver was recording at all: from sessions, and for journals without one (host, journal) from these
    first and last rows."""
    known = {(session.host, session.journal_id) for session in sessions}
    spans: dict[str, list[tuple[int, int]]] = {}
    for session in sessions:
        spans.setdefault(session.host, []).append((session.start, session.end + 1))
    for host, journal, first, last in journals:
        if (host, journal) not in known:
            spans.setdefault(host, []).append((first, last + 1))
    return {host: joined(some) for host, some in spans.items()}


def intervals(
    sessions: Collection[Session],
    journals: Mapping[tuple[str, str, str], tuple[int, int]],
    dims: Dims,
    offsets: Mapping[tuple[str, str], int],
) -> Iterator[Interval]:
    """When who was listening, day by day: from sessions, from first and last row of each (day, host, journal), and from
    how far the clock of each (day, host) is ahead."""
    known = {(session.host, session.journal_id) for session in sessions}
    for day, bits in dims.items():
        start = start_of(day) - DAY
        changes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        some = [session for session in sessions if session.host in bits]
        some += [
            Session(host, journal, first, last)
            for (its_day, host, journal), (first, last) in journals.items()
            if its_day == day and host in bits and (host, journal) not in known
        ]
        for session in some:
            offset = offsets.get((day, session.host), 0)
            begins = max(session.start - offset, start)
            ends = min(session.end - offset + 1, start + 3 * DAY)
            if begins < ends:
                changes[begins].append((bits[session.host], 1))
                changes[ends].append((bits[session.host], -1))
        yield from _sweep(day, changes)


def _sweep(day: str, changes: Mapping[int, list[tuple[int, int]]]) -> Iterator[Interval]:
    """Moments at which sessions begin and end -> stretches between them."""
    open_sessions: dict[int, int] = defaultdict(int)
    since = 0
    for moment in sorted(changes):
        bits = frozenset(bit for bit, count in open_sessions.items() if count)
        if bits:
            yield Interval(day, since, moment, bits)
        for bit, step in changes[moment]:
            open_sessions[bit] += step
        since = moment


def frame(spark: SparkSession, found: Iterator[Interval], words: int) -> DataFrame:
    """Intervals cut into minutes, to be joined by minute: (day, minute, from, to, listening...)."""
    rows: list[tuple[object, ...]] = []
    for interval in found:
        words_of = masks.of_bits(interval.bits, words)
        low = max(interval.start, start_of(interval.day) - DAY)
        for minute in range(low // MINUTE, (interval.end - 1) // MINUTE + 1):
            begins, ends = max(low, minute * MINUTE), min(interval.end, (minute + 1) * MINUTE)
            rows.append((interval.day, minute, begins, ends, *words_of))
    names = ["day", "minute", "since", "until", *masks.names("listening", words)]
    kinds = [pa.string(), *[pa.int64()] * (len(names) - 1)]
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return spark.createDataFrame(
        pa.table({name: pa.array(each, kind) for name, each, kind in zip(names, columns, kinds, strict=True)})
    )


def audience(
    bits: Mapping[str, int], recorded: Mapping[str, Collection[str]], segments: Collection[str], words: int
) -> list[int]:
    """Who of a day can hear a source that was heard on these segments; ``recorded`` has the segments of each host."""
    able = [bit for host, bit in bits.items() if not recorded.get(host) or set(segments) & set(recorded[host])]
    return masks.of_bits(able, words)
