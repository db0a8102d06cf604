"""The epochs of all sources, on all days known.

Law: an epoch is what align.py says, and reaches as far as its messages do, on whatever day; it is counted from 1 in the
order of time. ``skipped`` are the numbers between a jump and the epoch before, which nobody heard: as many messages may
have been lost. The table is whole: it has the epochs of days that were not computed as well, from what was kept.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bccnd.pipeline import masks
from bccnd.pipeline.align import ENDLESS, JUMP
from bccnd.pipeline.runs import day_of


def of_days(known: DataFrame, dims: DataFrame, words: int) -> DataFrame:
    """What is kept of a day's messages: (day, src, epoch, from_ts, to_ts, lo_key, hi_key, hosts)."""
    seen = masks.names("seen", words)
    sums = known.groupBy("day", "src", "epoch").agg(
        F.min("first").alias("from_ts"),
        F.max("first").alias("to_ts"),
        F.min("seq_key").alias("lo_key"),
        F.max("seq_key").alias("hi_key"),
        *[F.bit_or(name).alias(name) for name in seen],
    )
    hosts = (
        sums.join(F.broadcast(dims), "day")
        .filter(masks.has("seen", "bit", words))
        .groupBy("day", "src", "epoch")
        .agg(F.sort_array(F.collect_set("host")).alias("hosts"))
    )
    return sums.drop(*seen).join(hosts, ["day", "src", "epoch"], "left")


def epochs(days: DataFrame, causes: DataFrame) -> DataFrame:
    """The table, from what is kept of all days (`of_days`) and the cause of each epoch (src, epoch, cause)."""
    found = days.groupBy("src", "epoch").agg(
        F.min("from_ts").alias("first"),
        F.max("to_ts").alias("last"),
        F.min("lo_key").alias("first_key"),
        F.max("hi_key").alias("last_key"),
        F.size(F.array_distinct(F.flatten(F.collect_list("hosts")))).alias("hosts"),
    )
    before = F.lag("last_key").over(Window.partitionBy("src").orderBy("epoch"))
    # More than there is room for is as much as there is room for.
    skipped = F.coalesce(F.try_subtract(F.col("first_key") - 1, F.col("before")), F.lit(ENDLESS))
    return (
        found.join(causes, ["src", "epoch"])
        .withColumn("before", before)
        .withColumn("skipped", F.when((F.col("cause") == JUMP) & (F.col("before") < F.col("first_key")), skipped))
        .withColumn("first_ts", F.timestamp_micros("first"))
        .withColumn("last_ts", F.timestamp_micros("last"))
        .withColumn("day", day_of(F.col("first")))
    )
