"""Table `integrity`: who sent what was refused, minute by minute.

Law: every datagram that a receiver refused is counted in exactly one row. Refused is whatever was neither accepted nor
a copy, late, our own or meant for others. Addresses and names are those that the datagrams claim, and may be forged: a
stranger can fill no more than `CAP` rows a minute at a receiver with one verdict; the rest of his inventions are
counted together in a row without an address, with `*` for their src.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from bccnd.core.observe import JOURNAL_GAP
from bccnd.pipeline.runs import ARRIVED

#: verdicts of datagrams that were not refused; a row for records that nobody can read any more is no datagram
NOT_REFUSED: Final = (*ARRIVED, JOURNAL_GAP)
#: rows for one minute, receiver and verdict: more than anybody reads, and still few beside what they were made from
CAP: Final = 1000
#: stands for all other names; no sender may have it in its own
OTHERS: Final = "*"


def integrity(obs: DataFrame) -> DataFrame:
    """The table, with ``day``, from rows of the journal."""
    claimed = ("peer_ip", "claimed_src", "algo")
    cell = ("win", "host", "verdict")
    counted = (
        obs.where(~F.col("verdict").isin(*NOT_REFUSED))
        .groupBy(
            F.date_trunc("minute", "ts").alias("win"),
            "host",
            "verdict",
            "peer_ip",
            F.col("src").alias("claimed_src"),
            "algo",
        )
        .agg(F.count("*").alias("n"), F.min("ts").alias("first_ts"), F.max("ts").alias("last_ts"))
    )
    busiest = Window.partitionBy(*cell).orderBy(F.col("n").desc(), *claimed)
    beyond = F.row_number().over(busiest) > CAP
    return (
        counted.withColumn("beyond", beyond)
        .withColumn("peer_ip", F.when(~F.col("beyond"), F.col("peer_ip")))
        .withColumn("claimed_src", F.when(F.col("beyond"), OTHERS).otherwise(F.col("claimed_src")))
        .withColumn("algo", F.when(~F.col("beyond"), F.col("algo")))
        .groupBy(*cell, *claimed, "beyond")
        .agg(F.sum("n").alias("n"), F.min("first_ts").alias("first_ts"), F.max("last_ts").alias("last_ts"))
        .withColumn("day", F.to_date("win"))
    )
