"""Table `missed`: which numbers were missed, by all receivers (``host`` null), or by one although it was listening.

A range has no number of another kind in it, and cannot be extended. One that no receiver got is on the day of the
message after it, or of the report that tells of it, one that a receiver missed on the days of its messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def missed(ranges: DataFrame) -> DataFrame:
    """Compute the table from records `missed` (`KINDS`): ranges at the ends of blocks are joined to the next ones."""
    cell = ("day", "src", "epoch", "host")
    order = Window.partitionBy(*cell).orderBy("lo_key")
    follows = F.try_subtract(F.col("lo_key"), F.lit(1)) <= F.lag("hi_key").over(order)
    joined = (
        ranges.where("at_edge = 1")
        .withColumn("begins", F.when(follows, 0).otherwise(1))
        .withColumn("number", F.sum("begins").over(order))
        .groupBy(*cell, "number")
        .agg(F.min("lo_key").alias("lo_key"), F.max("hi_key").alias("hi_key"))
        .drop("number")
    )
    return ranges.where("at_edge = 0").drop("at_edge").unionByName(joined)
