"""Table `channel_traffic`: which channel carries how much, minute by minute and sender by sender.

A message counts once, however many receivers got it and however often it was sent. ``p50_len`` and ``p99_len`` are
lengths that occurred: the smallest that half, or 99 of 100, of the messages do not exceed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bccnd.pipeline.records.task_records import MINUTE, NAMELESS


def channel_traffic(lengths: DataFrame, nameless: DataFrame) -> DataFrame:
    """Compute the table from records `lengths`, and `nameless` of senders without a name (`task_records.KINDS`)."""
    cell = ("day", "minute", "chan", "src")
    of_nameless = nameless.distinct().select(*cell[:3], F.lit(NAMELESS).alias("src"), "len", F.lit(1).alias("n"))
    return (
        lengths.unionByName(of_nameless)
        .groupBy(*cell, "len")
        .agg(F.sum("n").alias("n"))
        .groupBy(*cell)
        .agg(
            F.sum("n").alias("msgs"),
            F.sum(F.col("n") * F.col("len")).alias("bytes"),
            F.sort_array(F.collect_list(F.struct("len", "n"))).alias("lengths"),
        )
        .withColumn("p50_len", _percentile(50))
        .withColumn("p99_len", _percentile(99))
        .withColumn("directed", F.col("chan").startswith("!") & (F.col("chan") != "!"))
        .withColumn("win", F.timestamp_micros(F.col("minute") * MINUTE))
    )


def _percentile(percent: int) -> Column:
    """Return the smallest length up to which so many messages are counted."""
    start = F.struct(F.lit(0).cast("bigint").alias("upto"), F.lit(None).cast("bigint").alias("len"))

    def add(counted: Column, length: Column) -> Column:
        upto = counted["upto"] + length["n"]
        reached = F.when(upto * 100 >= F.col("msgs") * percent, length["len"])
        return F.struct(upto.alias("upto"), F.coalesce(counted["len"], reached).alias("len"))

    return F.aggregate("lengths", start, add)["len"]
