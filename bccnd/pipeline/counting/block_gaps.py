"""Finds the gap before the first message of each block of numbers.

What comes before it is in another bucket, or on another day, where `message_records` has no access to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline.records.source_runs import ENDLESS
from bccnd.pipeline.records.task_records import RECORD, frame_of, of_kind, records_of


class BlockGaps:
    """These gaps, and what they add to records; ``reached`` has the highest number of each epoch (src, epoch) before
    each day, where other days are not here."""

    def __init__(
        self,
        spark: SparkSession,
        messages: DataFrame,
        reached: Mapping[tuple[str, int], Mapping[str, int]],
        days: Collection[str],
    ) -> None:
        self._messages = messages
        edges = of_kind(messages, "edge").toArrow().to_pylist()
        gaps = []
        previous: dict[tuple[str, int], int] = {}
        for edge in sorted(edges, key=lambda edge: (edge["src"], edge["epoch"], edge["block"])):
            source, low = (edge["src"], edge["epoch"]), edge["lo_key"]
            before = [previous.get(source), reached.get(source, {}).get(edge["day"])]
            lower = [key for key in before if key is not None and key < low]
            gap = min(low - max(lower) - 1, ENDLESS) if lower else 0
            previous[source] = edge["hi_key"]
            if gap and edge["day"] in days:
                gaps.append(edge | {"seq_key": low, "gap_before": gap, "lost_everywhere": gap})
        ids = sorted({edge["listening_set_id"] for edge in gaps})
        sets = of_kind(messages, "set").where(F.col("set_id").isin(ids)).collect() if ids else ()
        hosts = {row.set_id: row.hosts.split("\n") for row in sets}
        losses = [edge | {"host": host} for edge in gaps for host in hosts[edge["listening_set_id"]]]
        ranges = [
            edge | {"lo_key": edge["lo_key"] - edge["gap_before"], "hi_key": edge["lo_key"] - 1, "host": None}
            for edge in gaps
        ]
        edges_of = {"message": gaps, "missed": ranges, "link": losses, "channel": losses}
        batches = [records_of(kind, edges) for kind, edges in edges_of.items()]
        self._gaps = frame_of(spark, pa.Table.from_batches(batches, RECORD))

    def with_kind(self, kind: str) -> DataFrame:
        """Records of a kind, and what the gaps add to them."""
        return of_kind(self._messages, kind).unionByName(of_kind(self._gaps, kind))

    def added(self, messages: DataFrame) -> DataFrame:
        """Messages with these gaps."""
        gaps = of_kind(self._gaps, "message").select("src", "epoch", "seq_key", F.col("gap_before").alias("gap"))
        return (
            messages.join(F.broadcast(gaps), ["src", "epoch", "seq_key"], "left")
            .withColumn("gap_before", F.coalesce("gap_before", "gap", F.lit(0)))
            .withColumn("first_ts", F.timestamp_micros("first"))
        )
