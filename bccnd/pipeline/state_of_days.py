"""What is kept of the days that were computed, for runs that compute others.

Law: a day is computed anew when anything that its tables follow from, beside its own rows, is not what it was then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

#: what is kept of a day. ``kind``: `run` (a `align.Run`), `epoch` (`tables.epochs.of_days`; times and keys in from_ts,
#: to_ts, lo_key, hi_key; in from_rec the highest key of its epoch on all days before), `mark` (`align.Alignment.marks`,
#: in from_rec) or `clock` (the correction of a wrong clock in offset; loose where it is guessed)
STATE_SQL: Final = (
    "day string, kind string, src string, host string, journal_id string, epoch int, from_rec bigint, to_rec bigint, "
    "from_ts bigint, to_ts bigint, lo_key bigint, hi_key bigint, first_key bigint, last_key bigint, loose boolean, "
    "masked boolean, offset bigint, spread bigint, hosts array<string>"
)


def earlier(state: DataFrame | None, numbers: DataFrame, days: Sequence[str]) -> DataFrame | None:
    """The highest number of each epoch before each of these days, from what was kept of other days."""
    if state is None or not days:
        return None
    kept = state.filter("kind = 'epoch'").select("src", "epoch", F.col("day").alias("kept_day"), "hi_key")
    each = kept.withColumn("day", F.explode(F.array(*[F.lit(day) for day in days]))).filter("kept_day < day")
    return (
        each.join(numbers.select("src", "epoch", "id"), ["src", "epoch"])
        .groupBy("id", "day")
        .agg(F.max("hi_key").alias("reached"))
    )


def all_days(today: DataFrame, state: DataFrame | None) -> DataFrame:
    """The epochs of all days known, with the highest key of each on the days before: ``reached``, and of days that were
    not computed now what it was when they were: ``was``."""
    names = ("day", "src", "epoch", "from_ts", "to_ts", "lo_key", "hi_key", "hosts")
    found = today.select(*names, F.lit(None).cast("bigint").alias("was"), F.lit(True).alias("computed"))
    if state is not None:
        kept = state.filter("kind = 'epoch'").select(*names, F.col("from_rec").alias("was"), F.lit(False))
        found = found.union(kept)
    before = Window.partitionBy("src", "epoch").orderBy("day").rowsBetween(Window.unboundedPreceding, -1)
    return found.withColumn("reached", F.max("hi_key").over(before))


def kept(found: DataFrame, epochs: DataFrame, marks: DataFrame, clocks: DataFrame) -> DataFrame:
    """What is kept, in the shape of STATE_SQL."""
    together = found.withColumn("kind", F.lit("run"))
    today = epochs.filter("computed").drop("was", "computed").withColumnRenamed("reached", "from_rec")
    together = together.unionByName(today.withColumn("kind", F.lit("epoch")), allowMissingColumns=True)
    marks = marks.select("day", "src", F.col("mark").alias("from_rec"), F.lit("mark").alias("kind"))
    together = together.unionByName(marks, allowMissingColumns=True)
    together = together.unionByName(clocks.withColumn("kind", F.lit("clock")), allowMissingColumns=True)
    return together.select(*[one.split()[0] for one in STATE_SQL.split(",")])


def preceded(epochs: DataFrame, state: DataFrame | None) -> list[str]:
    """The other days with numbers before which other ones came than when they were computed: their gaps are wrong."""
    if state is None:
        return []
    changed = ~F.col("computed") & ~F.col("reached").eqNullSafe(F.col("was"))
    # What lies below both follows numbers of its own day.
    found = epochs.filter(changed & (F.col("hi_key") > F.least("reached", "was")))
    return [row["day"] for row in found.select("day").distinct().collect()]


def renumbered(marks: DataFrame, state: DataFrame | None, days: Sequence[str]) -> list[str]:
    """The other days whose marks are not what they were."""
    if state is None:
        return []
    before = state.filter("kind = 'mark'").select("day", "src", F.col("from_rec").alias("was"))
    both = marks.filter(~F.col("day").isin(*days)).join(before, ["day", "src"], "full_outer")
    changed = both.filter(~F.col("mark").eqNullSafe(F.col("was"))).select("day").distinct().collect()
    return sorted(row["day"] for row in changed)
