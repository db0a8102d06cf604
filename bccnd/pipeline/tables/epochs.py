"""Table `epochs`: the runs of all sources, on all days known.

An epoch is what epoch_alignment.py defines, and reaches as far as its messages do, or reports tell, on whatever day.
``skipped`` counts the numbers between a jump and the epoch before, which no receiver received: as many messages may
have been lost. The table is whole: it has the epochs of days that were not computed as well, from what was kept.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from bccnd.pipeline.records.source_runs import ENDLESS, JUMP


def program_of(src: Column | str) -> Column:
    """Return ``host/program`` of ``host/program/pid``, which stays the same when a program is started anew."""
    return F.regexp_replace(src, "^([^/]*/[^/]*)/.*$", "$1")


def of_days(parts: DataFrame) -> DataFrame:
    """Condense the records `epoch` of days to what is kept: src, epoch, from_ts, to_ts, lo_key, hi_key, hosts."""
    hosts = F.flatten(F.collect_set(F.split("hosts", "\n")))
    return parts.groupBy("day", "src", "epoch").agg(
        F.min("from_ts").alias("from_ts"),
        F.max("to_ts").alias("to_ts"),
        F.min("lo_key").alias("lo_key"),
        F.max("hi_key").alias("hi_key"),
        F.sort_array(F.array_distinct(hosts)).alias("hosts"),
    )


def epochs(days: DataFrame, causes: DataFrame) -> DataFrame:
    """Compute the table from what is kept of all days (`of_days`) and the cause of each epoch (src, epoch, cause)."""
    summed = days.groupBy("src", "epoch").agg(
        F.min("from_ts").alias("first"),
        F.max("to_ts").alias("last"),
        F.min("lo_key").alias("first_key"),
        F.max("hi_key").alias("last_key"),
        F.size(F.array_distinct(F.flatten(F.collect_list("hosts")))).alias("hosts"),
    )
    before = F.lag("last_key").over(Window.partitionBy("src").orderBy("epoch"))
    # a difference that does not fit counts as the largest
    skipped = F.coalesce(F.try_subtract(F.col("first_key") - 1, F.col("before")), F.lit(ENDLESS))
    return (
        summed.join(causes, ["src", "epoch"])
        .withColumn("before", before)
        .withColumn("skipped", F.when((F.col("cause") == JUMP) & (F.col("before") < F.col("first_key")), skipped))
        .withColumn("program", program_of("src"))
        .withColumn("first_ts", F.timestamp_micros("first"))
        .withColumn("last_ts", F.timestamp_micros("last"))
        .withColumn("day", F.to_date("first_ts"))
    )
