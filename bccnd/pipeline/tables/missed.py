"""Table `missed`: which numbers were missed, by all receivers (``host`` null), or by one although it was listening.

A range has no number of another kind in it and none next to it that belongs to it; one that no receiver saw is on the
day of the message behind it, one that a receiver missed on the days of its messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def missed(messages: DataFrame, sets: DataFrame) -> DataFrame:
    """The table, from messages and sets of receivers."""
    by_all = messages.where("gap_before > 0").select(
        "day",
        "src",
        "epoch",
        (F.col("seq_key") - F.col("gap_before")).alias("lo_key"),
        (F.col("seq_key") - 1).alias("hi_key"),
        F.lit(None).cast("string").alias("host"),
    )
    hosts = sets.select("set_id", "hosts").distinct()
    listening = hosts.select(F.col("set_id").alias("listening_set_id"), F.col("hosts").alias("listening"))
    order = Window.partitionBy("day", "src", "epoch", "host").orderBy("seq_key")
    by_one = (
        messages.where("set_id <> listening_set_id")
        .join(F.broadcast(hosts), "set_id")
        .join(F.broadcast(listening), "listening_set_id")
        .select("day", "src", "epoch", "seq_key", F.explode(F.array_except("listening", "hosts")).alias("host"))
        # Less than the rank: the lowest key of all, that of seq 0, has room for no more.
        .withColumn("range", F.col("seq_key") - (F.dense_rank().over(order) - 1))
        .groupBy("day", "src", "epoch", "host", "range")
        .agg(F.min("seq_key").alias("lo_key"), F.max("seq_key").alias("hi_key"))
        .select(by_all.columns)
    )
    return by_all.unionByName(by_one)
