"""Keeps a run as cheap as its days: what is known of days that are final is carried as one row for each source.

A day is final some time before the newest day of the tables: it is not computed again, whatever comes for it. The last
final day is still aligned, because what happens at midnight belongs to both days; days before it are known only by what
is carried. Tables that are not divided by the days of rows, `epochs` and `liveness`, keep what they have of final days,
but for what goes on behind them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bccnd.core.tracking.explained_holes import LEAST
from bccnd.pipeline.lake.delta import STATE
from bccnd.pipeline.lake.table_store import Store
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
#: days of `liveness` that are read sooner than a query tells which of them matter
_FEW_DAYS: Final = 60


class Carry(NamedTuple):
    """What a run knows of final days. Days before ``first`` are known only by `epochs` (`schema.CARRIED`) and `heard`
    (`schema.CARRIED_HEARD`), which wait until both are written; those before ``open`` are final."""

    first: str
    open: str
    written: Future[tuple[DataFrame, DataFrame]]

    @property
    def epochs(self) -> DataFrame:
        return self.written.result()[0]

    @property
    def heard(self) -> DataFrame:
        return self.written.result()[1]


def first_open_day(days: Collection[str], final_after: float, now: float) -> str:
    """The first day that is not final: any, empty, if ``final_after`` is 0. A clock that is ahead makes no day final,
    so the newest day is one that has begun."""
    if not days or not final_after:
        return ""
    newest = min(date_of(max(days)), int(now // 86_400))
    return day_of(newest - math.ceil(final_after / 86_400))


def carry(kept: Store, first_open: str, background: Executor) -> Carry | None:
    """What is to be known of days before the last final one; None if there are no such days.

    It is written anew once a day, in the ``background``: Spark is idle while it starts to read a journal."""
    days = kept.days(ALIGN)
    if not first_open or min(days, default=first_open) >= beside(first_open)[0]:
        return None
    first = beside(first_open)[0]
    return Carry(first, first_open, background.submit(_carried, kept, first, days))


def _carried(kept: Store, first: str, days: Collection[str]) -> tuple[DataFrame, DataFrame]:
    """Return the epochs and silences that are carried of the days before ``first``, from what the tables have."""
    last, carried = beside(first)[0], max(kept.days(CARRIED), default="")
    earlier = carried if carried <= last else ""
    new = {day for day in days if earlier < day < first}
    if new:
        _write(kept, first, earlier, new)
    read = kept.written if new else kept.read
    epochs, heard = read(CARRIED, schema.CARRIED), read(CARRIED_HEARD, schema.CARRIED_HEARD)
    return epochs or kept.nothing(schema.CARRIED), heard or kept.nothing(schema.CARRIED_HEARD)


def _write(kept: Store, first: str, earlier: str, days: set[str]) -> None:
    """Carry these days, and what is carried up to a day ``earlier``."""
    state = kept.read(ALIGN, schema.ALIGN, days) or kept.nothing(schema.ALIGN)
    heard = kept.read(HEARD, schema.HEARD, days) or kept.nothing(schema.HEARD)
    before = kept.read(CARRIED, schema.CARRIED) if earlier else None
    heard_before = kept.read(CARRIED_HEARD, schema.CARRIED_HEARD) if earlier else None
    day = F.lit(beside(first)[0])
    first_day = kept.read(ALIGN, schema.ALIGN, {first})
    known = kept.days("liveness")
    if len(known) > _FEW_DAYS:
        known &= days | {first} | _unsettled_days(heard_before)
    silences = kept.read("liveness", schema.TABLES["liveness"], known)
    frames = {
        CARRIED: carried_epochs(state, before, first_day).withColumn("day", day),
        CARRIED_HEARD: carried_heard(heard, heard_before, silences).withColumn("day", day),
    }
    with ThreadPoolExecutor(len(frames)) as pool:
        list(pool.map(kept.write, frames.keys(), frames.values()))
    for name in frames:
        kept.replace(name)


def _is_settled() -> Column:
    """Whether what is carried of a source needs not be looked at until it is heard again: its silence has begun, and
    nothing can change what it counts as."""
    certain = F.col("patience").isNull() | (F.col("verdict") == "open")
    certain |= F.col("host").isNull() & (F.col("verdict") == "host_down")
    return (F.col("what") == "heard") & F.coalesce(certain, F.lit(False))


def _unsettled_days(carried: DataFrame | None) -> set[str]:
    """The days on which sources were heard last whose silences may count as something else by now."""
    if carried is None:
        return set()
    ends = carried.where((F.col("what") == "heard") & ~_is_settled()).select(
        F.floor(F.col("to_us") / DAY).alias("date")
    )
    return {each for (date,) in ends.distinct().collect() for each in (day_of(date), *beside(day_of(date)))}


def carried_epochs(state: DataFrame, before: DataFrame | None, first_day: DataFrame | None) -> DataFrame:
    """One row for each source, from what was kept of days, what was carried before, and the first day that follows."""
    run = F.struct(
        "host",
        "journal_id",
        "epoch",
        (F.col("to_ts") - F.col("offset")).alias("to_ts"),
        (F.col("hi_key") - F.col("lo_key")).alias("pace"),
        F.greatest(F.col("to_ts") - F.col("from_ts"), F.lit(LEAST)).alias("pace_us"),
    )
    ended = F.struct(F.col("epoch").alias("number"), "hi_key", "hosts")
    is_run, is_epoch = F.col("kind") == "run", F.col("kind") == "epoch"
    rows = state.select("src", F.when(is_epoch, ended).alias("ended"), F.when(is_run, run).alias("run"))
    if before is not None:
        run = F.struct("host", "journal_id", "epoch", "to_ts", "pace", "pace_us")
        rows = rows.unionByName(
            before.select("src", F.struct("number", "hi_key", "hosts").alias("ended"), run.alias("run"))
        )
    if first_day is not None:
        behind = first_day.where(is_epoch).select("src", F.col("epoch").alias("following"))
        rows = rows.unionByName(behind, allowMissingColumns=True)
    else:
        rows = rows.withColumn("following", F.lit(None).cast("long"))
    # A receiver does not count what it has sent itself.
    order = F.when(F.col("run").isNotNull(), F.struct(F.col("run.epoch") > 0, "run.to_ts", "run.host"))
    # Joins would take a shuffle each, and a day has little to carry.
    sources = rows.groupBy("src").agg(
        F.collect_list("ended").alias("ended"),
        F.max("ended.number").alias("number"),
        F.max_by(F.struct("run.host", "run.journal_id", "run.epoch"), order).alias("latest"),
        F.max("run.to_ts").alias("to_ts"),
        F.max_by(F.struct("run.pace", "run.pace_us"), F.col("run.pace") / F.col("run.pace_us")).alias("fastest"),
        F.collect_set("following").alias("following"),
    )
    number = F.col("number")
    last = F.filter("ended", lambda epoch: epoch["number"] == number)
    carried = sources.where(number.isNotNull() & F.col("latest").isNotNull()).select(
        "src",
        "number",
        "latest.*",
        "to_ts",
        F.array_max(F.transform(last, lambda epoch: epoch["hi_key"])).alias("hi_key"),
        "fastest.*",
        F.array_min(F.filter("following", lambda epoch: epoch > number)).alias("following"),
        F.array_distinct(F.flatten(F.transform(last, lambda epoch: epoch["hosts"]))).alias("hosts"),
    )
    return carried.select(*schema.CARRIED.names)


def carried_heard(heard: DataFrame, before: DataFrame | None, silences: DataFrame | None) -> DataFrame:
    """What is carried of silences, from what was kept of days, what was carried before, and the table `liveness`, of
    which only the days matter on which a source was heard last whose silence may count as something else by now."""
    rows = heard.select(*schema.HEARD.names, F.lit(None).cast("string").alias("verdict"))
    if before is not None:
        # What is settled stays so.
        verdict = F.when(_is_settled(), F.col("verdict")).alias("verdict")
        rows = rows.unionByName(before.select(*schema.HEARD.names, verdict))
    is_heard, is_journal = F.col("what") == "heard", F.col("what") == "journal"
    is_born = F.col("host").isNull() & F.col("patience").isNotNull() & F.col("what").isin("heard", "born")
    fields = ("what", "from_us", "to_us", "patience", "basis", "verdict")
    pairs = rows.groupBy("host", "src").agg(
        F.max_by(F.when(is_heard, F.struct(*fields)), F.when(is_heard, F.col("to_us"))).alias("last"),
        F.min(F.when(is_born, F.col("from_us"))).alias("born_us"),
        F.max(F.when(is_born, F.col("patience"))).alias("patience"),
        F.min(F.when(is_journal, F.col("from_us"))).alias("begun_us"),
        F.max(F.when(is_journal, F.col("to_us"))).alias("ended_us"),
    )

    def row(what: str, first: str, last: str, patience: Column, basis: Column) -> Column:
        """A row of this kind, or null."""
        values = (F.lit(what), F.col(first), F.col(last), patience, basis, F.lit(None).cast("string"))
        named = F.struct(*[value.alias(name) for name, value in zip(fields, values, strict=True)])
        return F.when(F.col(first).isNotNull(), named)

    none = F.lit(None)
    born = row("born", "born_us", "born_us", F.col("patience"), F.lit(""))
    journal = row("journal", "begun_us", "ended_us", none.cast("long"), none.cast("string"))
    carried = pairs.select("host", "src", F.explode(F.array("last", born, journal)).alias("row"))
    carried = carried.where("row IS NOT NULL").select("host", "src", "row.*")
    if silences is not None:
        kinds = silences.select(
            F.col("host").alias("of_host"), F.col("src").alias("of_src"), "from_ts", F.col("kind").alias("now")
        )
        same = F.col("host").eqNullSafe(F.col("of_host")) & (F.col("src") == F.col("of_src")) & is_heard
        same &= F.timestamp_micros("to_us") == F.col("from_ts")
        carried = carried.join(kinds, same, "left").withColumn("verdict", F.coalesce("verdict", "now"))
    return carried.select(*schema.CARRIED_HEARD.names)


# -- tables that are not divided by the days of rows


def unsettled(carried: DataFrame, heard: DataFrame) -> DataFrame:
    """What of it is to be looked at beside what was heard on days that are not carried."""
    again = heard.where("what = 'heard'").select(F.col("src").alias("again")).distinct()
    joined = carried.join(again, F.col("src") == F.col("again"), "left")
    return joined.where(F.col("again").isNotNull() | ~_is_settled()).drop("again")


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
