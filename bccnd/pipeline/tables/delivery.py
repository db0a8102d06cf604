"""Which sets of receivers saw how many messages.

Law: every message of the day is in exactly one row, so the numbers of a source's epoch add up to those of messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bccnd.pipeline import masks


def delivery(known: DataFrame, words: int) -> DataFrame:
    """The table, from what `compute` knows of each message."""
    seen = masks.names("seen", words)
    found = known.groupBy("day", "src", "epoch", *seen).agg(
        F.count("*").alias("n"), F.min("seq_key").alias("example_key")
    )
    return found.withColumnsRenamed({name: name.replace("seen", "seen_by") for name in seen})
