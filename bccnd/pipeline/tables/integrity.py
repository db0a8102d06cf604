"""Table `integrity`: which senders sent datagrams that were refused, minute by minute.

Every datagram that a receiver refused is counted in exactly one row. Refused is whatever was neither accepted nor a
copy, late, the receiver's own or meant for others. Addresses and names are those that the datagrams claim, and may be
forged: they fill no more than `CAP` rows a minute at a receiver with one verdict. The rest is counted together in a row
without an address, with `*` for its src.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bccnd.pipeline.records.task_records import MINUTE

#: rows for one minute, receiver and verdict: more than a reader looks at, and few beside the datagrams
CAP: Final = 1000
#: stands for all other names; no sender may have it in its own
OTHERS: Final = "*"


def integrity(refused: DataFrame, cap: int = CAP) -> DataFrame:
    """Compute the table from records `refused` (`task_records.KINDS`)."""
    claimed = ("peer_ip", "claimed_src", "algo")
    cell = ("day", "minute", "host", "verdict")
    sums = (F.sum("n").alias("n"), F.min("first").alias("first"), F.max("last_us").alias("last_us"))
    busiest = Window.partitionBy(*cell).orderBy(F.col("n").desc(), *claimed)
    return (
        refused.withColumnRenamed("src", "claimed_src")
        .groupBy(*cell, *claimed)
        .agg(*sums)
        .withColumn("beyond", F.row_number().over(busiest) > cap)
        .withColumn("peer_ip", F.when(~F.col("beyond"), F.col("peer_ip")))
        .withColumn("claimed_src", F.when(F.col("beyond"), OTHERS).otherwise(F.col("claimed_src")))
        .withColumn("algo", F.when(~F.col("beyond"), F.col("algo")))
        .groupBy(*cell, *claimed, "beyond")
        .agg(*sums)
        .withColumn("win", F.timestamp_micros(F.col("minute") * MINUTE))
        .withColumn("first_ts", F.timestamp_micros("first"))
        .withColumn("last_ts", F.timestamp_micros("last_us"))
    )
