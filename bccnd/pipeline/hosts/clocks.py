"""Compares the clocks of hosts, and corrects the times of those that are wrong.

Invariant: of the hosts that receive from the same sources on a day the middle clock is right (of two middle ones the
slower one). A host whose clock is off by half a minute or more has its rows and sessions moved by whole minutes, before
anything else is made of them; so one wrong clock moves no message of the others to another minute or day. What is
smaller stays as the host recorded it.

The correction of a host on a day follows from the rows that carry this day by the hosts' own clocks; where these have
no message that another host heard as well, from the days beside it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterable, Mapping
from statistics import median_low
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bccnd.pipeline.inputs.input_history import Session
from bccnd.pipeline.records.row_batch import Numbers, grouped
from bccnd.pipeline.records.source_runs import HORIZON
from bccnd.pipeline.records.task_records import DAY, MINUTE, beside, day_of

#: rows of a day by which clocks are compared, at most: enough for percentiles to the microsecond or so
SAMPLE: Final = 500_000
#: microseconds at which the spread of a clock is capped
MAX_SPREAD: Final = 2_000_000

#: a day and a host
Key = tuple[str, str]


class Clock(NamedTuple):
    """How far a host's clock is ahead on a day, and how far that wavers, in microseconds."""

    offset: int
    spread: int


class Skew(NamedTuple):
    """A row of the table skew: how far the clock of a host is ahead of that of another."""

    day: str
    host: str
    reference: str
    low: int
    middle: int
    high: int
    n: int = 0


class KeptClocks(NamedTuple):
    """What is known of the clocks of days that are not computed now.

    ``clocks`` are those of the days beside the ones computed, ``corrections`` those of all days that are not 0;
    ``guessed`` are corrections that follow from another day, ``days`` the days beside that were computed before.
    """

    clocks: Mapping[Key, Clock]
    corrections: Mapping[Key, int]
    guessed: Collection[Key]
    days: Collection[str]


NO_CLOCKS: Final = KeptClocks({}, {}, (), ())


def kept(state: DataFrame | None, days: Collection[str]) -> KeptClocks:
    """What was kept of other days than these."""
    if state is None or not days:
        return NO_CLOCKS
    days_beside = {neighbour for day in days for neighbour in beside(day)} - set(days)
    wanted = (F.col("kind") == "clock") | ((F.col("kind") == "run") & F.col("day").isin(*sorted(days_beside)))
    clocks: dict[Key, Clock] = {}
    corrections: dict[Key, int] = {}
    guessed = set()
    rows = state.filter(wanted).select("kind", "day", "host", "offset", "spread", "loose")
    for kind, day, host, offset, spread, loose in rows.distinct().collect():
        if kind == "run":
            clocks[day, host] = Clock(offset, spread)
        else:
            corrections[day, host] = offset
            if loose:
                guessed.add((day, host))
    return KeptClocks(clocks, corrections, guessed, {day for day, _ in clocks})


def kept_corrections(state: DataFrame | None) -> dict[Key, int]:
    """The corrections of all days for which they were kept."""
    if state is None:
        return {}
    rows = state.filter("kind = 'clock'").select("day", "host", "offset").collect()
    return {(day, host): by for day, host, by in rows}


# -- how far clocks are apart


def references(rows: Mapping[str, int], together: Iterable[Iterable[str]]) -> dict[str, str]:
    """The reference of each host, from the new rows of each and the sets of hosts that hear the same source: the host
    with most rows of those that are so connected, of several the first by name."""
    group = {host: host for host in rows}

    def top(host: str) -> str:
        while group[host] != host:
            host = group[host]
        return host

    for hosts in together:
        first, *rest = hosts
        for host in rest:
            group[top(host)] = top(first)
    best: dict[str, str] = {}
    for host in sorted(rows, key=lambda host: (-rows[host], host)):
        best.setdefault(top(host), host)
    return {host: best[top(host)] for host in rows}


def parts_of(rows: int) -> int:
    """Of how many parts of a day's messages one is taken: a power of two, so that larger parts hold smaller ones."""
    return 1 << max(0, -(-rows // SAMPLE) - 1).bit_length()


def compare(day: str, samples: Iterable[tuple[str, bytes]], reference: Mapping[str, str], parts: int) -> list[Skew]:
    """How far the clocks of a day's hosts are apart: percentiles over messages that a host and its reference both
    accepted, and only those with a number that neither has seen twice, as a number may come in more than one epoch.
    ``samples`` are records of the scan; one message of ``parts`` is taken."""
    data: dict[str, list[Numbers]] = {}
    for host, sample in samples:
        data.setdefault(host, []).append(np.frombuffer(sample, "<i8").reshape(3, -1))
    single = {host: _single(np.concatenate(of_host, axis=1), parts) for host, of_host in data.items()}
    skews = []
    for host in sorted(single):
        ref_host = reference[host]
        if host == ref_host or ref_host not in single:
            continue
        (messages, times), (ref_messages, ref_times) = single[host], single[ref_host]
        _, rows, ref_rows = np.intersect1d(messages, ref_messages, assume_unique=True, return_indices=True)
        if len(rows):
            low, middle, high = np.percentile(times[rows] - ref_times[ref_rows], (5, 50, 95)) + 0.5
            skews.append(Skew(day, host, ref_host, math.floor(low), math.floor(middle), math.floor(high), len(rows)))
    return skews


def _single(sample: Numbers, parts: int) -> tuple[Numbers, Numbers]:
    """The messages of a host that came once, and when: of its own broadcasts copies may be there."""
    message, ts, looped = sample[:, (sample[0].view(np.uint64) & np.uint64(parts - 1)) == 0]
    groups = grouped(message)
    first = groups.reduce(np.minimum, ts)
    copies = groups.reduce(np.minimum, looped).astype(bool) & (groups.reduce(np.maximum, ts) - first <= HORIZON)
    once = (groups.sizes() == 1) | copies
    return message[groups.heads][once], first[once]


def offsets(skews: Iterable[Skew]) -> dict[Key, Clock]:
    """How far the clocks of hosts are ahead of the middle one of those that they can be compared with."""
    groups: dict[Key, dict[str, Skew]] = {}
    for skew in skews:
        groups.setdefault((skew.day, skew.reference), {})[skew.host] = skew
    clocks: dict[Key, Clock] = {}
    for (day, reference), hosts in groups.items():
        middle = median_low([0, *(skew.middle for skew in hosts.values())])
        clocks[day, reference] = Clock(-middle, 0)
        for host, skew in hosts.items():
            clocks[day, host] = Clock(skew.middle - middle, min(skew.high - skew.low, MAX_SPREAD))
    return clocks


def corrections(
    clocks: Mapping[Key, Clock],
    rows: Mapping[str, Collection[str]],
    days: Collection[str],
    kept_clocks: KeptClocks = NO_CLOCKS,
) -> tuple[dict[Key, int], set[Key]]:
    """By how much the rows of each (day, host) have to be moved, where that is not 0, and which of this is guessed.

    ``clocks`` are those of ``days``, ``rows`` the hosts with rows on these days and those beside them.
    """
    own = {key: (clock.offset + MINUTE // 2) // MINUTE * MINUTE for key, clock in clocks.items()}
    sure = {key: by for key, by in kept_clocks.corrections.items() if key not in kept_clocks.guessed} | own
    corrected = dict(kept_clocks.corrections)
    guessed = set(kept_clocks.guessed)
    for day, hosts in rows.items():
        if day in kept_clocks.days and day not in days:
            continue
        for host in hosts:
            nearby = next((sure[neighbour, host] for neighbour in beside(day) if sure.get((neighbour, host))), 0)
            if by := own.get((day, host), nearby):
                corrected[day, host] = by
                if (day, host) not in own:
                    guessed.add((day, host))
    return corrected, guessed


def remaining(clocks: Mapping[Key, Clock], corrections: Mapping[Key, int], kept_clocks: KeptClocks) -> dict[Key, Clock]:
    """How far clocks are ahead when their rows have been put right, also on days beside to which rows have come."""
    ahead = dict(kept_clocks.clocks)
    ahead |= {key: clock._replace(offset=clock.offset - corrections.get(key, 0)) for key, clock in clocks.items()}
    beside_corrected = {
        (day, host): ahead[corrected_day, host]
        for corrected_day, host in sorted(corrections)
        if (corrected_day, host) in ahead
        for day in beside(corrected_day)
        if (day, host) not in ahead
    }
    return beside_corrected | ahead


def days_touched(
    asked: Collection[str], days: Collection[str], now: Mapping[Key, int], before: Mapping[Key, int]
) -> set[str]:
    """The days that have to be computed with ``days`` because rows come to them or go from them: those beside a day
    whose corrections are other ones than ``before``, and the one that rows of a day that is ``asked`` for move to."""
    touched: set[str] = set()
    for key in {key for key in (*now, *before) if key[0] in days}:
        earlier, later = beside(key[0])
        if now.get(key, 0) != before.get(key, 0):
            touched |= {earlier, later}
        elif key[0] in asked:
            touched.add(earlier if now[key] > 0 else later)
    return touched


def widest(days: Collection[str], now: Mapping[Key, int]) -> datetime.timedelta:
    """How far rows of these days and those beside them are moved at most."""
    days_around = {neighbour for day in days for neighbour in (day, *beside(day))}
    by = max((abs(correction) for (day, _), correction in now.items() if day in days_around), default=0)
    return datetime.timedelta(microseconds=by)


def correct_sessions(sessions: Iterable[Session], corrections: Mapping[Key, int]) -> list[Session]:
    """Sessions by clocks that are right."""
    corrected = []
    for session in sessions:
        bounds = session.start, session.end
        start, end = (time - corrections.get((day_of(time // DAY), session.host), 0) for time in bounds)
        corrected.append(session._replace(start=start, end=max(start, end)))
    return corrected


def to_keep(corrections: Mapping[Key, int], guessed: Collection[Key], days: Collection[str]) -> pa.Table:
    """The corrections of days that were computed: day, host, offset, loose (guessed)."""
    rows = [
        {"day": day, "host": host, "offset": by, "loose": (day, host) in guessed}
        for (day, host), by in corrections.items()
        if day in days
    ]
    types = {"day": pa.string(), "host": pa.string(), "offset": pa.int64(), "loose": pa.bool_()}
    return pa.Table.from_pylist(rows, pa.schema(types))
