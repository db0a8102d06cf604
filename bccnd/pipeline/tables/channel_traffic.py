"""Table `channel_traffic`: which channel carries how much, minute by minute and sender by sender.

Law: a message counts once, however many receivers got it and however often it was sent. ``p50_len`` and ``p99_len``
are lengths that occurred: the smallest that half, or 99 of 100, of the messages do not exceed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def _percentile(percent: int) -> Column:
    """The smallest length up to which so many messages are counted; ``upto`` and ``total`` count them."""
    return F.min(F.when(F.col("upto") * 100 >= F.col("total") * percent, F.col("len")))


def channel_traffic(traffic: DataFrame) -> DataFrame:
    """The table, with ``day``, from one row for each message: day, win, src, chan, form, len."""
    cell = ("day", "win", "chan", "src")
    # Counted by length first: what has to be sorted is lengths that occur, not messages.
    lengths = traffic.groupBy(*cell, "len").agg(
        F.count("*").alias("n"), F.max(F.col("form") == "directed").alias("directed")
    )
    one = Window.partitionBy(*cell)
    return (
        lengths.withColumn("upto", F.sum("n").over(one.orderBy("len")))
        .withColumn("total", F.sum("n").over(one))
        .groupBy(*cell)
        .agg(
            F.sum("n").alias("msgs"),
            F.sum(F.col("n") * F.col("len")).alias("bytes"),
            _percentile(50).alias("p50_len"),
            _percentile(99).alias("p99_len"),
            F.max("directed").alias("directed"),
        )
    )
