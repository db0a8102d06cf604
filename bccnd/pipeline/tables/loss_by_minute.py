"""Tables `link_loss` and `channel_loss`: how much of what was sent each receiver got, minute by minute.

In every row of `link_loss` ``expected = any_seen + lost_everywhere`` and ``any_seen = seen + lost_here +
not_listening``. A receiver has a row for each source that can reach it. What was sent while it was not recording is no
loss, also if no receiver got it: ``loss_ratio`` is null for a minute in which nothing was due. ``dup`` counts copies in
the minute in which they came, ``late`` what arrived only after what followed it. `channel_loss` has no column
``not_listening``, and ``expected`` is without it; a number that no receiver got counts for the channel of the message
after it, and for none if only a report tells of it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bccnd.pipeline.records.task_records import MINUTE


def link_loss(parts: DataFrame) -> DataFrame:
    """Compute the table from records `link` (`task_records.KINDS`)."""
    due = F.col("expected") - F.col("not_listening")
    lost = F.col("lost_here") + F.col("lost_everywhere")
    return (
        summed(parts, "day", "host", "src", "epoch", "minute")
        .withColumn("expected", F.col("any_seen") + F.col("lost_everywhere"))
        .withColumn("seen", F.col("any_seen") - F.col("lost_here") - F.col("not_listening"))
        .withColumn("loss_ratio", F.when(due > 0, lost / due))
    )


def channel_loss(parts: DataFrame) -> DataFrame:
    """Compute the table from records `channel` (`task_records.KINDS`)."""
    return (
        summed(parts, "day", "host", "chan", "minute")
        .withColumn("seen", F.col("any_seen") - F.col("lost_here") - F.col("not_listening"))
        .withColumn("expected", F.col("seen") + F.col("lost_here") + F.col("lost_everywhere"))
    )


def summed(parts: DataFrame, *cell: str) -> DataFrame:
    """Return one row for each cell, with the sums of all other columns, and its minute as a time: ``win``."""
    sums = [F.sum(name).alias(name) for name in parts.columns if name not in cell]
    return parts.groupBy(*cell).agg(*sums).withColumn("win", F.timestamp_micros(F.col("minute") * MINUTE))
