"""Table `channel_traffic`: which channel carries how much, minute by minute and sender by sender.

A message counts once, however many receivers got it and however often it was sent. ``p50_len`` and ``p99_len`` are
lengths that occurred: the smallest that half, or 99 of 100, of the messages do not exceed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from bccnd.pipeline.rows import MINUTE, NAMELESS


def _percentile(percent: int) -> Column:
    """The smallest length up to which so many messages are counted; ``upto`` and ``total`` count them."""
    return F.min(F.when(F.col("upto") * 100 >= F.col("total") * percent, F.col("len")))


def channel_traffic(messages: DataFrame, nameless: DataFrame) -> DataFrame:
    """The table, from messages and those of senders without a name (`rows.KINDS`)."""
    cell = ("day", "minute", "chan", "src")
    # Counted by length first: what has to be sorted is lengths that occur, not messages.
    named = messages.groupBy(*cell, "len").agg(F.count("*").alias("n"))
    others = (
        nameless.distinct()
        .groupBy("day", "minute", "chan", "len")
        .agg(F.count("*").alias("n"))
        .withColumn("src", F.lit(NAMELESS))
    )
    one = Window.partitionBy(*cell)
    return (
        named.unionByName(others)
        .withColumn("upto", F.sum("n").over(one.orderBy("len")))
        .withColumn("total", F.sum("n").over(one))
        .groupBy(*cell)
        .agg(
            F.sum("n").alias("msgs"),
            F.sum(F.col("n") * F.col("len")).alias("bytes"),
            _percentile(50).alias("p50_len"),
            _percentile(99).alias("p99_len"),
        )
        .withColumn("directed", F.col("chan").startswith("!") & (F.col("chan") != "!"))
        .withColumn("win", F.timestamp_micros(F.col("minute") * MINUTE))
    )
