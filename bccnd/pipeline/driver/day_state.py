"""What is kept of the days that were computed, for runs that compute others.

Invariant: a day is computed anew when anything that its tables follow from, beside its own rows, is not what it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bccnd.pipeline.tables import schema


def with_carried(state: DataFrame | None, carried: DataFrame | None) -> DataFrame | None:
    """What was kept of days, and the last epochs of sources on days that are only carried, as if of their last day."""
    if state is None or carried is None:
        return state
    last = carried.select("src", F.col("number").alias("epoch"), "hi_key", "hosts", "day", F.lit("epoch").alias("kind"))
    return state.unionByName(last, allowMissingColumns=True)


def reached(state: DataFrame | None, days: Collection[str]) -> dict[tuple[str, int], dict[str, int]]:
    """The highest number of each epoch (src, epoch) before each of these days, from what was kept of other days."""
    highest: dict[tuple[str, int], dict[str, int]] = {}
    if state is None or not days:
        return highest
    # Of all days before the same one of these only the highest number matters.
    next_day = F.array_min(F.array(*[F.when(F.col("day") < day, day) for day in days]))
    kept = state.where("kind = 'epoch'").where(F.col("day") < max(days)).withColumn("next_day", next_day)
    for src, epoch, first, key in kept.groupBy("src", "epoch", "next_day").agg(F.max("hi_key")).collect():
        of_epoch = highest.setdefault((src, epoch), {})
        for day in days:
            if first <= day:
                of_epoch[day] = max(key, of_epoch.get(day, key))
    return highest


def all_days(today: DataFrame, state: DataFrame | None) -> DataFrame:
    """The epochs of all days known, with the highest key of each on the days before: ``reached``, and of days that were
    not computed now what it was when they were: ``was``."""
    names = ("day", "src", "epoch", "from_ts", "to_ts", "lo_key", "hi_key", "hosts")
    epochs = today.select(*names, F.lit(None).cast("bigint").alias("was"), F.lit(True).alias("computed"))
    if state is not None:
        kept = state.filter("kind = 'epoch'").select(*names, F.col("from_rec").alias("was"), F.lit(False))
        epochs = epochs.union(kept)
    before = Window.partitionBy("src", "epoch").orderBy("day").rowsBetween(Window.unboundedPreceding, -1)
    return epochs.withColumn("reached", F.max("hi_key").over(before))


def kept(aligned: DataFrame, epochs: DataFrame, clocks: DataFrame) -> DataFrame:
    """What is kept, in the shape of `schema.ALIGN` and ``day``: runs and marks, epochs, corrections of clocks."""
    today = epochs.filter("computed").drop("was", "computed").withColumnRenamed("reached", "from_rec")
    together = aligned.unionByName(today.withColumn("kind", F.lit("epoch")), allowMissingColumns=True)
    together = together.unionByName(clocks.withColumn("kind", F.lit("clock")), allowMissingColumns=True)
    return together.select(*schema.ALIGN.names, "day")


def preceded(epochs: DataFrame, state: DataFrame | None) -> list[str]:
    """The other days with numbers before which other ones came than when they were computed: their gaps are wrong."""
    if state is None:
        return []
    changed = ~F.col("computed") & ~F.col("reached").eqNullSafe(F.col("was"))
    # What lies below both follows numbers of its own day.
    wrong = epochs.filter(changed & (F.col("hi_key") > F.least("reached", "was")))
    return [row["day"] for row in wrong.select("day").distinct().collect()]


def renumbered(marks: DataFrame, state: DataFrame | None, days: Sequence[str]) -> list[str]:
    """The other days whose marks are not what they were."""
    if state is None:
        return []
    before = state.filter("kind = 'mark'").select("day", "src", F.col("from_rec").alias("was"))
    both = marks.filter(~F.col("day").isin(*days)).join(before, ["day", "src"], "full_outer")
    changed = both.filter(~F.col("mark").eqNullSafe(F.col("was"))).select("day").distinct().collect()
    return sorted(row["day"] for row in changed)
