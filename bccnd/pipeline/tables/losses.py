"""Tables `link_loss` and `channel_loss`: how much of what was sent a receiver saw, minute by minute.

In every row of `link_loss` ``expected = any_seen + lost_everywhere`` and ``any_seen = seen + lost_here +
not_listening``. A receiver has a row for each source that it can hear at all. What it did not see while it was not
recording is no loss, and neither are numbers that no receiver saw then: ``loss_ratio`` is null for a minute in which
nothing was due to it. ``dup`` counts copies in the minute in which they came, ``late`` what arrived only after what
followed it. In `channel_loss`, which has no column for what a receiver was not listening for, ``expected`` is without
it; a number that no receiver saw counts for the channel of the message behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bccnd.pipeline.rows import MINUTE

_COUNTS: Final = ("any_seen", "lost_everywhere", "lost_here", "not_listening", "late", "dup")


def link_loss(messages: DataFrame, sets: DataFrame, copies: DataFrame) -> DataFrame:
    """The table, from messages, sets of receivers and the copies that came to each receiver (`rows.KINDS`)."""
    cell = ("day", "src", "epoch", "minute")
    came_again = copies.select(*cell, "host", F.lit("dup").alias("count"), "n")
    due = F.col("expected") - F.col("not_listening")
    lost = F.col("lost_here") + F.col("lost_everywhere")
    return (
        _summed(shares(messages, sets, cell).unionByName(came_again), cell)
        .withColumn("expected", F.col("any_seen") + F.col("lost_everywhere"))
        .withColumn("seen", F.col("any_seen") - F.col("lost_here") - F.col("not_listening"))
        .withColumn("loss_ratio", F.when(due > 0, lost / due))
    )


def channel_loss(messages: DataFrame, sets: DataFrame) -> DataFrame:
    """The table, from messages and sets of receivers."""
    cell = ("day", "chan", "minute")
    return (
        _summed(shares(messages, sets, cell), cell)
        .withColumn("seen", F.col("any_seen") - F.col("lost_here") - F.col("not_listening"))
        .withColumn("expected", F.col("seen") + F.col("lost_here") + F.col("lost_everywhere"))
    )


def shares(messages: DataFrame, sets: DataFrame, cell: Sequence[str]) -> DataFrame:
    """What each receiver saw and lost in each cell: (*cell, host, count, n), where ``count`` names what was counted.
    Messages that the same receivers saw are counted together before they are counted for each of them."""
    counted = messages.groupBy(*cell, "set_id", "listening_set_id", "audience_set_id", "late_set_id").agg(
        F.count("*").alias("n"), F.sum("gap_before").alias("gap")
    )
    hosts = sets.select("set_id", "hosts").distinct()

    def named(name: str) -> DataFrame:
        return F.broadcast(hosts.select(F.col("set_id").alias(f"{name}set_id"), F.col("hosts").alias(f"{name}hosts")))

    def each(count: str, frame: DataFrame, receivers: Column | str, n: str = "n") -> DataFrame:
        return frame.select(*cell, F.explode(receivers).alias("host"), F.lit(count).alias("count"), F.col(n).alias("n"))

    heard = counted.groupBy(*cell, "audience_set_id").agg(F.sum("n").alias("n"))
    gaps = counted.where("gap > 0").groupBy(*cell, "listening_set_id").agg(F.sum("gap").alias("gap"))
    lost = counted.where("set_id <> listening_set_id").join(named(""), "set_id")
    away = counted.where("listening_set_id <> audience_set_id").join(named("audience_"), "audience_set_id")
    found = [
        each("any_seen", heard.join(named("audience_"), "audience_set_id"), "audience_hosts"),
        each("lost_everywhere", gaps.join(named("listening_"), "listening_set_id"), "listening_hosts", "gap"),
        each(
            "lost_here",
            lost.join(named("listening_"), "listening_set_id"),
            F.array_except("listening_hosts", "hosts"),
        ),
        each(
            "not_listening",
            away.join(named("listening_"), "listening_set_id"),
            F.array_except("audience_hosts", "listening_hosts"),
        ),
        each("late", counted.join(named("late_"), "late_set_id"), "late_hosts"),
    ]
    return reduce(DataFrame.unionByName, found)


def _summed(shares: DataFrame, cell: Sequence[str]) -> DataFrame:
    """One row for each cell and receiver, with a column for each count, and the minute as a time: ``win``."""
    sums = [F.sum(F.when(F.col("count") == name, F.col("n")).otherwise(0)).alias(name) for name in _COUNTS]
    return shares.groupBy(*cell, "host").agg(*sums).withColumn("win", F.timestamp_micros(F.col("minute") * MINUTE))
