"""Table `delivery`: which sets of receivers got how many messages.

Every message of the day is in exactly one row, so the numbers of a source's epoch add up to those of messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def delivery(parts: DataFrame) -> DataFrame:
    """Compute the table from records `delivered` (`task_records.KINDS`)."""
    return parts.groupBy("day", "src", "epoch", "set_id").agg(
        F.sum("n").alias("n"), F.min("example_key").alias("example_key")
    )
