"""One row for each message: who saw it, and who was listening.

Law: a message is a source's number on a channel, within an epoch. It was seen by every receiver at which any datagram
of it arrived, be it as a copy, too late, or for somebody else; what was refused is in no count. It belongs to the day
and minute of its first arrival, by the clock of whoever says the smallest, wrong clocks put right (clocks.py).
``gap_before`` counts the numbers directly before it, within its epoch, that nobody saw.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from bccnd.pipeline import masks
from bccnd.pipeline.runs import DAY, MINUTE, day_of

#: rows of pieces up to which they are sent to every task
SMALL: Final = 300_000


def placed(rows: DataFrame, numbers: DataFrame, pieces: DataFrame | None, *, broadcast: bool) -> DataFrame:
    """Rows with the number of their epoch: ``id``.

    ``numbers`` has it for sources of a single epoch (src, id), ``pieces`` for the others (host, journal_id, src, the
    bounds of `align.Piece`, id)."""

    def small(frame: DataFrame) -> DataFrame:
        return F.broadcast(frame) if broadcast else frame

    arrived = rows.filter("tracked")
    if pieces is None:
        return arrived.join(small(numbers), "src")
    pieces = pieces.withColumnRenamed("id", "piece_id").alias("piece")
    joined = arrived.join(small(numbers), "src", "left").alias("row")
    for name in ("host", "journal_id", "src"):
        pieces = pieces.withColumnRenamed(name, f"piece_{name}")
    fits = (
        F.col("id").isNull()
        & (F.col("src") == F.col("piece_src"))
        & (F.col("host") == F.col("piece_host"))
        & (F.col("journal_id") == F.col("piece_journal_id"))
        & F.col("rec_no").between(F.col("from_rec"), F.col("to_rec"))
        & F.col("us").between(F.col("from_ts"), F.col("to_ts"))
        & F.col("seq_key").between(F.col("lo_key"), F.col("hi_key"))
    )
    found = joined.join(small(pieces), fits, "left")
    return found.withColumn("id", F.coalesce("id", "piece_id")).filter("id is not null")


def arrivals(placed: DataFrame, hosts: DataFrame, words: int) -> DataFrame:
    """One row for each message, from its rows and what is known of hosts: (host, date, bit, offset)."""
    kind = F.when(F.col("verdict") == "stale", 1).when(F.col("verdict") == "duplicate", 2).otherwise(0)
    zero = F.lit(0).cast("bigint")
    collected: list[Column] = []
    for word in range(words):
        mine = masks.single("bit", word)
        for name, column in (
            ("seen", mine),
            ("stale", F.when(F.col("kind") == 1, mine).otherwise(zero)),
            ("other", F.when(F.col("kind") == 0, mine).otherwise(zero)),
        ):
            collected.append(F.bit_or(column).alias(masks.names(name, words)[word]))
    narrow = (
        placed.withColumn("date", F.floor(F.col("us") / DAY))
        .join(F.broadcast(hosts), ["host", "date"])
        .select("id", "seq_key", "chan", "us", "offset", "len", "bit", kind.alias("kind"))
        # rows of the same message come from different hosts' files: sums before they are together would save nothing
        .repartition("id", "seq_key")
    )
    return (
        narrow.groupBy("id", "seq_key", "chan")
        .agg(
            F.min("us").alias("first"),
            F.min(F.col("us") - F.col("offset")).alias("moment"),
            F.count("*").alias("copies"),
            F.max("len").alias("len"),
            *collected,
        )
        .withColumn("day", day_of(F.col("first")))
        .withColumn("win", F.floor(F.col("first") / MINUTE))
    )


def with_gaps(messages: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """Messages with ``gap_before``. ``earlier`` (id, day, reached) has the highest number of an epoch on the days
    before each day, for those whose messages are not all here."""
    order = Window.partitionBy("id").orderBy("seq_key", "chan")
    found = messages.withColumn("previous", F.lag("seq_key").over(order))
    if earlier is not None:
        found = found.join(F.broadcast(earlier), ["id", "day"], "left")
        reached = F.when(F.col("reached") < F.col("seq_key"), F.col("reached"))
        found = found.withColumn("previous", F.greatest("previous", reached)).drop("reached")
    gap = F.greatest(F.col("seq_key") - F.col("previous") - 1, F.lit(0).cast("bigint"))
    return found.withColumn("gap_before", F.coalesce(gap, F.lit(0).cast("bigint"))).drop("previous")


def messages(known: DataFrame, words: int) -> DataFrame:
    """The table, from what `compute` knows of each message."""
    renamed = {name: name.replace("seen", "seen_by") for name in masks.names("seen", words)}
    return known.withColumnsRenamed(renamed).withColumn("first_ts", F.timestamp_micros("first"))
