"""How much of what a source sent a receiver saw, minute by minute.

Law: ``expected = any_seen + lost_everywhere`` and ``any_seen = seen + lost_here + not_listening``, in every row. A
receiver has a row for each source that it can hear at all (it is on a segment where somebody heard it), and what it did
not see while it was not recording is no loss: ``loss_ratio`` is null for a minute in which nothing was due to it.
``dup`` counts copies in the minute in which they came, ``late`` what arrived only after what followed it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bccnd.pipeline import masks

#: what a row is about
CELL = ("day", "src", "epoch", "win", "host")


def absent(known: DataFrame, dims: DataFrame, words: int) -> DataFrame:
    """Who of those who can hear its source did not see a message, and whether he listened: one row for each."""
    missing = [
        F.expr(f"{heard} & ~{seen}").alias(name)
        for heard, seen, name in zip(
            *(masks.names(mask, words) for mask in ("audience", "seen", "missing")), strict=True
        )
    ]
    some = known.select("day", "src", "epoch", "win", "seq_key", *masks.names("listening", words), *missing)
    some = some.filter(" or ".join(f"{name} != 0" for name in masks.names("missing", words)))
    return (
        some.join(F.broadcast(dims), "day")
        .filter(masks.has("missing", "bit", words))
        .select(*CELL, "seq_key", masks.has("listening", "bit", words).alias("listened"))
    )


def link_loss(known: DataFrame, absent: DataFrame, copies: DataFrame, dims: DataFrame, words: int) -> DataFrame:
    """The table, from what `compute` knows of each message, from who missed it, and from how many ``copies`` came
    when: CELL and ``dup``."""
    late = masks.names("late", words)
    audience = masks.names("audience", words)
    minutes = known.groupBy("day", "src", "epoch", "win", *audience).agg(
        F.count("*").alias("any_seen"),
        F.sum("gap_before").alias("lost_everywhere"),
    )
    everyone = (
        minutes.join(F.broadcast(dims), "day")
        .filter(masks.has("audience", "bit", words))
        .select(*CELL, "any_seen", "lost_everywhere")
    )
    nothing = F.lit(0).cast("bigint")
    lost = absent.groupBy(*CELL).agg(
        F.count_if("listened").alias("lost_here"), F.count_if(~F.col("listened")).alias("not_listening")
    )
    came_late = (
        known.filter(" or ".join(f"{name} != 0" for name in late))
        .select("day", "src", "epoch", "win", *late)
        .join(F.broadcast(dims), "day")
        .filter(masks.has("late", "bit", words))
        .groupBy(*CELL)
        .agg(F.count("*").alias("late"))
    )
    parts = ("any_seen", "lost_everywhere", "lost_here", "not_listening", "late", "dup")
    together: DataFrame | None = None
    for frame in (everyone, lost, came_late, copies):
        filled = frame.select(
            *CELL, *[(F.col(name) if name in frame.columns else nothing).alias(name) for name in parts]
        )
        together = filled if together is None else together.unionByName(filled)
    if together is None:
        raise AssertionError
    sums = together.groupBy(*CELL).agg(*[F.sum(name).alias(name) for name in parts])
    due = F.col("expected") - F.col("not_listening")
    # What nobody saw is due only to who was there: else a host that was off would be said to have lost it.
    there = F.col("any_seen") > F.col("not_listening")
    return (
        sums.withColumn("expected", F.col("any_seen") + F.col("lost_everywhere"))
        .withColumn("seen", F.col("any_seen") - F.col("lost_here") - F.col("not_listening"))
        .withColumn("loss_ratio", F.when(there, (F.col("lost_here") + F.col("lost_everywhere")) / due))
        .withColumn("win", F.timestamp_micros(F.col("win") * 60_000_000))
    )
