"""Table `delivery`: which sets of receivers saw how many messages.

Every message of the day is in exactly one row, so the numbers of a source's epoch add up to those of messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def delivery(messages: DataFrame) -> DataFrame:
    """The table, from messages."""
    return messages.groupBy("day", "src", "epoch", "set_id").agg(
        F.count("*").alias("n"), F.min("seq_key").alias("example_key")
    )
