"""The clocks of hosts: how far each is ahead on a day, and rows of clocks that are wrong, put right.

Invariant: of the hosts that hear of the same sources on a day the middle clock is right (of two middle ones the slower
one). A host whose clock is off by half a minute or more has its rows and sessions moved by whole minutes, before
anything else is made of them; so one wrong clock moves no message of the others to another minute or day. What is
smaller stays as the host recorded it.

The correction of a host on a day follows from the rows that carry this day by the hosts' own clocks; where these have
no message that another host heard as well, from the days beside it.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from statistics import median_low
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline import align, runs
from bccnd.pipeline.runs import MINUTE

#: microseconds beyond which the wavering of a clock tells nothing
MAX_SPREAD: Final = 2_000_000

#: a day and a host
Key = tuple[str, str]


class Clock(NamedTuple):
    """How far a host's clock is ahead on a day, and how far that wavers, in microseconds."""

    offset: int
    spread: int


class Apart(NamedTuple):
    """A row of the table skew: how far the clock of a host is ahead of that of another."""

    day: str
    host: str
    reference: str
    low: int
    middle: int
    high: int


class Kept(NamedTuple):
    """What is known of the clocks of days that are not computed now.

    ``clocks`` are those of the days beside the ones computed, ``corrections`` those of all days that are not 0;
    ``guessed`` are corrections that follow from another day, ``days`` the days beside that were computed before.
    """

    clocks: Mapping[Key, Clock]
    corrections: Mapping[Key, int]
    guessed: Collection[Key]
    days: Collection[str]


NOTHING_KEPT: Final = Kept({}, {}, (), ())


def beside(day: str) -> tuple[str, str]:
    """The day before and the day after."""
    date = datetime.date.fromisoformat(day)
    step = datetime.timedelta(days=1)
    return (date - step).isoformat(), (date + step).isoformat()


def kept(state: DataFrame | None, days: Collection[str]) -> Kept:
    """What was kept of other days than these."""
    if state is None or not days:
        return NOTHING_KEPT
    near = {each for day in days for each in beside(day)} - set(days)
    wanted = (F.col("kind") == "clock") | ((F.col("kind") == "run") & F.col("day").isin(*sorted(near)))
    clocks: dict[Key, Clock] = {}
    corrections: dict[Key, int] = {}
    guessed = set()
    found = state.filter(wanted).select("kind", "day", "host", "offset", "spread", "loose")
    for kind, day, host, offset, spread, loose in found.distinct().collect():
        if kind == "run":
            clocks[day, host] = Clock(offset, spread)
        else:
            corrections[day, host] = offset
            if loose:
                guessed.add((day, host))
    return Kept(clocks, corrections, guessed, {day for day, _ in clocks})


def kept_corrections(state: DataFrame | None) -> dict[Key, int]:
    """The corrections of all days for which they were kept."""
    if state is None:
        return {}
    found = state.filter("kind = 'clock'").select("day", "host", "offset").collect()
    return {(day, host): by for day, host, by in found}


def offsets(apart: Iterable[Apart]) -> dict[Key, Clock]:
    """How far the clocks of hosts are ahead of the middle one of those that they can be compared with."""
    groups: dict[Key, dict[str, Apart]] = {}
    for one in apart:
        groups.setdefault((one.day, one.reference), {})[one.host] = one
    found: dict[Key, Clock] = {}
    for (day, reference), hosts in groups.items():
        middle = median_low([0, *(one.middle for one in hosts.values())])
        found[day, reference] = Clock(-middle, 0)
        for host, one in hosts.items():
            found[day, host] = Clock(one.middle - middle, min(one.high - one.low, MAX_SPREAD))
    return found


def corrections(
    clocks: Mapping[Key, Clock], rows: Mapping[str, Collection[str]], days: Collection[str], known: Kept = NOTHING_KEPT
) -> tuple[dict[Key, int], set[Key]]:
    """By how much the rows of each (day, host) have to be moved, where that is not 0, and which of this is guessed.

    ``clocks`` are those of ``days``, ``rows`` the hosts with rows on these days and those beside them.
    """
    own = {key: (clock.offset + MINUTE // 2) // MINUTE * MINUTE for key, clock in clocks.items()}
    sure = {key: by for key, by in known.corrections.items() if key not in known.guessed} | own
    found = dict(known.corrections)
    guessed = set(known.guessed)
    for day, hosts in rows.items():
        for key in [(day, host) for host in hosts]:
            if key in own:
                by = own[key]
            elif day in known.days and day not in days:
                by = known.corrections.get(key, 0)
            else:
                by = next((sure[each, key[1]] for each in beside(day) if sure.get((each, key[1]))), 0)
                if by:
                    guessed.add(key)
            if by:
                found[key] = by
    return found, guessed


def left(clocks: Mapping[Key, Clock], corrections: Mapping[Key, int], others: Kept) -> dict[Key, Clock]:
    """How far clocks are ahead when their rows have been put right, also on days beside to which rows have come."""
    found = {key: clock._replace(offset=clock.offset - corrections.get(key, 0)) for key, clock in clocks.items()}
    found = {**others.clocks, **found}
    come = {
        (day, host): found[each, host]
        for each, host in sorted(corrections)
        if (each, host) in found
        for day in beside(each)
        if (day, host) not in found
    }
    return {**come, **found}


def moved(asked: Collection[str], days: Collection[str], now: Mapping[Key, int], before: Mapping[Key, int]) -> set[str]:
    """The days that have to be computed with ``days`` because rows come to them or go from them: those beside a day
    whose corrections are other ones than ``before``, and the one that rows of a day that is ``asked`` for move to."""
    found: set[str] = set()
    for key in {key for key in (*now, *before) if key[0] in days}:
        earlier, later = beside(key[0])
        if now.get(key, 0) != before.get(key, 0):
            found |= {earlier, later}
        elif key[0] in asked:
            found.add(earlier if now[key] > 0 else later)
    return found


def widest(days: Collection[str], now: Mapping[Key, int]) -> datetime.timedelta:
    """How far rows of these days and those beside them are moved at most."""
    near = {each for day in days for each in (day, *beside(day))}
    return datetime.timedelta(microseconds=max((abs(by) for (day, _), by in now.items() if day in near), default=0))


# -- rows


def put_right(spark: SparkSession, obs: DataFrame, corrections: Mapping[Key, int]) -> DataFrame:
    """Rows of the journal by clocks that are right."""
    return _shifted(spark, obs, corrections, "ts").drop("day") if corrections else obs


def sessions_put_right(spark: SparkSession, sessions: DataFrame, corrections: Mapping[Key, int]) -> DataFrame:
    """Sessions by clocks that are right."""
    if not corrections:
        return sessions
    found = _shifted(spark, _shifted(spark, sessions, corrections, "start_ts"), corrections, "end_ts")
    return found.withColumn("end_ts", F.greatest("start_ts", "end_ts"))


def of_days(obs: DataFrame, days: Collection[str] | None) -> DataFrame:
    """The rows of some days, or all, by the time that they carry."""
    if days is None:
        return obs
    return obs.filter(runs.day_of(F.unix_micros("ts")).isin(*sorted(days)))


def _shifted(spark: SparkSession, frame: DataFrame, corrections: Mapping[Key, int], time: str) -> DataFrame:
    us = F.unix_micros(time)
    rows = [(*key, by) for key, by in corrections.items()]
    table = F.broadcast(runs.frame_of(spark, rows, "its_day string, its_host string, by bigint"))
    own = (F.col("its_host") == F.col("host")) & (F.col("its_day") == runs.day_of(us))
    by: Column = F.coalesce("by", F.lit(0).cast("bigint"))
    return (
        frame.join(table, own, "left").withColumn(time, F.timestamp_micros(us - by)).drop("its_day", "its_host", "by")
    )


def to_keep(
    spark: SparkSession, corrections: Mapping[Key, int], guessed: Collection[Key], days: Collection[str]
) -> DataFrame:
    """The corrections of days that were computed: day, host, offset, loose (guessed)."""
    rows = [(*key, by, key in guessed) for key, by in corrections.items() if key[0] in days]
    return runs.frame_of(spark, rows, "day string, host string, offset bigint, loose boolean")


def with_clocks(
    spark: SparkSession, found: DataFrame | pa.Table, clocks: Mapping[Key, Clock], sql: str
) -> DataFrame | pa.Table:
    """Runs with what is known of their clocks: src and the fields of `align.Run`, in the shape of ``sql``."""
    names = ("src", *align.Run._fields[:-2])
    if not isinstance(found, DataFrame):
        right = Clock(0, 0)
        rows = [(*row, *clocks.get((row[1], row[2]), right)) for row in runs.rows_of(found, names)]
        return runs.table_of(rows, runs.arrow_columns(sql))
    table = runs.frame_of(
        spark,
        [(*key, *clock) for key, clock in clocks.items()],
        "day string, host string, offset bigint, spread bigint",
    )
    zero = F.lit(0).cast("bigint")
    return (
        found.join(F.broadcast(table), ["day", "host"], "left")
        .withColumn("offset", F.coalesce("offset", zero))
        .withColumn("spread", F.coalesce("spread", zero))
        .select("src", *align.Run._fields)
    )
