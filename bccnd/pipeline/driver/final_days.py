"""Keeps a run as cheap as its days: what is known of days that are final is carried as one row for each source.

A day is final some time before the newest day of the tables: it is not computed again, whatever comes for it. The last
final day is still aligned, because what happens at midnight belongs to both days; days before it are known only by what
is carried. Tables that are not divided by the days of rows, `epochs` and `liveness`, keep what they have of final days,
but for what goes on behind them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bccnd.core.tracking.explained_holes import LEAST
from bccnd.pipeline.lake.delta import STATE
from bccnd.pipeline.lake.store import Store
from bccnd.pipeline.records.task_records import DAY, beside, date_of, day_of
from bccnd.pipeline.tables import schema

#: seconds behind the newest day after which a day is final
FINAL_AFTER: Final = 7 * 86_400.0
#: what runs keep of each day for later ones
ALIGN: Final = f"{STATE}/align"
HEARD: Final = f"{STATE}/heard"
#: what is carried, on the last day that it is about
CARRIED: Final = f"{STATE}/carried"
CARRIED_HEARD: Final = f"{STATE}/carried_heard"


class Carry(NamedTuple):
    """What a run knows of final days. Days before ``first`` are known only by ``epochs`` (`schema.CARRIED`) and
    ``heard`` (`schema.CARRIED_HEARD`); those before ``open`` are final."""

    first: str
    open: str
    epochs: DataFrame
    heard: DataFrame


def first_open_day(days: Collection[str], final_after: float, now: float) -> str:
    """The first day that is not final: any, empty, if ``final_after`` is 0. A clock that is ahead makes no day final,
    so the newest day is one that has begun."""
    if not days or not final_after:
        return ""
    newest = min(date_of(max(days)), int(now // 86_400))
    return day_of(newest - math.ceil(final_after / 86_400))


def carry(kept: Store, first_open: str) -> Carry | None:
    """What is to be known of days before the last final one, from what the tables have; None if there are no such days.
    It is written anew once a day."""
    days = kept.days(ALIGN)
    if not first_open or min(days, default=first_open) >= beside(first_open)[0]:
        return None
    first = beside(first_open)[0]
    last = beside(first)[0]
    carried = max(kept.days(CARRIED), default="")
    if carried != last:
        earlier = carried if carried < last else ""
        _write(kept, first, earlier, {day for day in days if earlier < day < first})
    read = kept.read if carried == last else kept.written
    epochs, heard = read(CARRIED, schema.CARRIED), read(CARRIED_HEARD, schema.CARRIED_HEARD)
    return Carry(first, first_open, epochs, heard) if epochs is not None and heard is not None else None


def _write(kept: Store, first: str, earlier: str, days: set[str]) -> None:
    """Carry these days, and what is carried up to a day ``earlier``."""
    state, heard = kept.read(ALIGN, schema.ALIGN, days), kept.read(HEARD, schema.HEARD, days)
    before = kept.read(CARRIED, schema.CARRIED) if earlier else None
    heard_before = kept.read(CARRIED_HEARD, schema.CARRIED_HEARD) if earlier else None
    if state is None or heard is None:
        return
    day = F.lit(beside(first)[0])
    first_day = kept.read(ALIGN, schema.ALIGN, {first})
    kept.write(CARRIED, carried_epochs(state, before, first_day).withColumn("day", day))
    silences = kept.read("liveness", schema.TABLES["liveness"])
    kept.write(CARRIED_HEARD, carried_heard(heard, heard_before, silences).withColumn("day", day))
    kept.replace(CARRIED)
    kept.replace(CARRIED_HEARD)


def carried_epochs(state: DataFrame, before: DataFrame | None, first_day: DataFrame | None) -> DataFrame:
    """One row for each source, from what was kept of days, what was carried before, and the first day that follows."""
    ended = state.where("kind = 'epoch'").select("src", F.col("epoch").alias("number"), "hi_key", "hosts")
    lasted = F.greatest(F.col("to_ts") - F.col("from_ts"), F.lit(LEAST))
    pace = F.struct((F.col("hi_key") - F.col("lo_key")).alias("pace"), lasted.alias("pace_us"))
    place = ("src", "host", "journal_id", "epoch")
    runs = state.where("kind = 'run'").select(
        *place, (F.col("to_ts") - F.col("offset")).alias("to_ts"), pace.alias("p")
    )
    if before is not None:
        ended = ended.unionByName(before.select(*ended.columns))
        runs = runs.unionByName(before.select(*place, "to_ts", F.struct("pace", "pace_us").alias("p")))
    last = (
        ended.groupBy("src", "number")
        .agg(F.max("hi_key").alias("hi_key"), F.array_distinct(F.flatten(F.collect_list("hosts"))).alias("hosts"))
        .groupBy("src")
        .agg(F.max_by(F.struct("number", "hi_key", "hosts"), "number").alias("last"))
        .select("src", "last.*")
    )
    # A receiver does not count what it has sent itself.
    latest = F.max_by(F.struct("host", "journal_id", "epoch"), F.struct(F.col("epoch") > 0, "to_ts", "host"))
    heard = runs.groupBy("src").agg(
        latest.alias("latest"),
        F.max("to_ts").alias("to_ts"),
        F.max_by("p", F.col("p.pace") / F.col("p.pace_us")).alias("p"),
    )
    carried = last.join(heard.select("src", "latest.*", "to_ts", "p.*"), "src")
    if first_day is None:
        return carried.withColumn("following", F.lit(None).cast("long")).select(*schema.CARRIED.names)
    behind = first_day.where("kind = 'epoch'").select("src", F.col("epoch").alias("next"))
    following = behind.join(last, "src").where("next > number").groupBy("src").agg(F.min("next").alias("following"))
    return carried.join(following, "src", "left").select(*schema.CARRIED.names)


def carried_heard(heard: DataFrame, before: DataFrame | None, silences: DataFrame | None) -> DataFrame:
    """What is carried of silences, from what was kept of days, what was carried before, and the table `liveness`."""
    rows = heard.select(*schema.HEARD.names)
    if before is not None:
        rows = rows.unionByName(before.select(*schema.HEARD.names))
    pair = ("host", "src")
    last = (
        rows.where("what = 'heard'")
        .groupBy(*pair)
        .agg(F.max_by(F.struct("what", "from_us", "to_us", "patience", "basis"), "to_us").alias("last"))
        .select(*pair, "last.*")
    )
    of_all = rows.where("host IS NULL AND patience IS NOT NULL AND what IN ('heard', 'born')")
    born = of_all.groupBy(*pair).agg(
        F.lit("born").alias("what"),
        F.min("from_us").alias("from_us"),
        F.min("from_us").alias("to_us"),
        F.max("patience").alias("patience"),
        F.lit("").alias("basis"),
    )
    journals = (
        rows.where("what = 'journal'")
        .groupBy(*pair)
        .agg(F.lit("journal").alias("what"), F.min("from_us").alias("from_us"), F.max("to_us").alias("to_us"))
    )
    if silences is None:
        last = last.withColumn("verdict", F.lit(None).cast("string"))
    else:
        verdicts = silences.select(
            F.col("host").alias("of_host"), F.col("src").alias("of_src"), "from_ts", F.col("kind").alias("verdict")
        )
        same = F.col("host").eqNullSafe(F.col("of_host")) & (F.col("src") == F.col("of_src"))
        same &= F.timestamp_micros("to_us") == F.col("from_ts")
        last = last.join(verdicts, same, "left")
    return (
        last.select(*schema.CARRIED_HEARD.names)
        .unionByName(born, allowMissingColumns=True)
        .unionByName(journals, allowMissingColumns=True)
    )


# -- tables that are not divided by the days of rows


def is_settled() -> Column:
    """Whether what is carried of a source needs not be looked at until it is heard again: its silence has begun, and
    nothing can change what it counts as."""
    return (F.col("what") == "heard") & (
        F.col("patience").isNull()
        | (F.col("verdict") == "open")
        | (F.col("host").isNull() & (F.col("verdict") == "host_down"))
    )


def unsettled(carried: DataFrame, heard: DataFrame) -> DataFrame:
    """What of it is to be looked at beside what was heard on days that are not carried."""
    again = heard.where("what = 'heard'").select(F.col("src").alias("again")).distinct()
    joined = carried.join(again, F.col("src") == F.col("again"), "left")
    return joined.where(F.col("again").isNotNull() | ~F.coalesce(is_settled(), F.lit(False))).drop("again")


def put_epochs(kept: Store, epochs: DataFrame, open_day: str) -> None:
    """Write the table `epochs` on all days that change, from the epochs that were heard on days that are not carried.
    How an epoch began on a final day does not change any more."""
    # An epoch is named by its beginning, which is on its day, or near to it.
    began = F.to_date(F.timestamp_seconds("epoch")).cast("string")
    final, days = _final(kept, "epochs", epochs.select(began), open_day, with_beside=True)
    if final is None:
        kept.write("epochs", epochs)
    else:
        names = ("first_ts", "first_key", "cause", "skipped")
        was = [F.col(name).alias(f"was_{name}") for name in (*names, "last_ts")]
        joined = epochs.join(final.select("src", "epoch", F.lit(True).alias("known"), *was), ["src", "epoch"], "left")
        for name in names:
            joined = joined.withColumn(name, F.when(F.col("known"), F.col(f"was_{name}")).otherwise(F.col(name)))
        # Of an epoch that goes on only in reports nothing else was received.
        joined = joined.withColumn("last_ts", F.coalesce("last_ts", "was_last_ts"))
        joined = joined.withColumn("day", F.to_date("first_ts")).select(*epochs.columns)
        unchanged = final.join(epochs.select("src", "epoch"), ["src", "epoch"], "left_anti")
        kept.write("epochs", joined.unionByName(unchanged.select(*epochs.columns)))
    kept.replace("epochs", days)


def put_liveness(kept: Store, silences: DataFrame, looked_at: DataFrame, open_day: str) -> None:
    """Write the table `liveness` on all days that change, from the silences of the pairs of receivers and sources that
    were ``looked_at``: those that had not ended when the days that are not final began."""
    start = F.timestamp_micros(F.lit(date_of(open_day) * DAY))
    goes_on = F.col("to_ts").isNull() | (F.col("to_ts") >= start)
    silences = silences.where((F.col("from_ts") >= start) | goes_on).persist(StorageLevel.DISK_ONLY)
    try:
        final, days = _final(kept, "liveness", silences.select(F.col("day").cast("string")), open_day)
        merged = silences
        if final is not None:
            heard = looked_at.where("what = 'heard'")
            pairs = heard.select(F.col("host").alias("of_host"), F.col("src").alias("of_src")).distinct()
            same = F.col("host").eqNullSafe(F.col("of_host")) & (F.col("src") == F.col("of_src"))
            unchanged = final.where(~goes_on).unionByName(final.where(goes_on).join(pairs, same, "left_anti"))
            merged = silences.unionByName(unchanged.select(*silences.columns))
        kept.write("liveness", merged)
        kept.replace("liveness", days)
    finally:
        silences.unpersist()


def _final(
    kept: Store, table: str, changed: DataFrame, open_day: str, *, with_beside: bool = False
) -> tuple[DataFrame | None, set[str]]:
    """What a table has of the final ones among the days that change (one column) and, if ``with_beside``, the days
    beside these; and all days that are to be replaced."""
    days = {row[0] for row in changed.distinct().collect()}
    if with_beside:
        days |= {neighbour for day in days for neighbour in beside(day)}
    final = kept.read(table, schema.TABLES[table], {day for day in days if day < open_day})
    if final is not None:
        final = final.withColumn("day", F.col("day").cast("date"))
    return final, days | {day for day in kept.days(table) if day >= open_day}
