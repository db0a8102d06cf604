"""Which numbers were missed: by everybody, or by a receiver although it was listening.

Law: a range has no number of another kind in it and none next to it that belongs to it; one that nobody saw is on the
day of the message behind it, one that a receiver missed on the days of its messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def missed(known: DataFrame, absent: DataFrame) -> DataFrame:
    """The table, from what `compute` knows of each message, and from who missed it (`link_loss.absent`)."""
    everyone = known.filter("gap_before > 0").select(
        "day",
        "src",
        "epoch",
        (F.col("seq_key") - F.col("gap_before")).alias("lo_key"),
        (F.col("seq_key") - 1).alias("hi_key"),
        F.lit(None).cast("string").alias("host"),
    )
    order = Window.partitionBy("day", "src", "epoch", "host").orderBy("seq_key")
    someone = (
        absent.filter("listened")
        # Less than the rank: the lowest key of all, that of seq 0, has room for no more.
        .withColumn("range", F.col("seq_key") - (F.dense_rank().over(order) - 1))
        .groupBy("day", "src", "epoch", "host", "range")
        .agg(F.min("seq_key").alias("lo_key"), F.max("seq_key").alias("hi_key"))
        .select(everyone.columns)
    )
    return everyone.unionByName(someone)
