"""The gap before the first message of each block of numbers: what comes before it is in another bucket, or on another
day, so that `arrivals` cannot know it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline import task_records
from bccnd.pipeline.epoch_alignment import ENDLESS


class Gaps:
    """These gaps, and what they add to records; ``reached`` has the highest number of each epoch (src, epoch) before
    each day, where other days are not here."""

    def __init__(
        self,
        spark: SparkSession,
        known: DataFrame,
        reached: Mapping[tuple[str, int], Mapping[str, int]],
        days: Collection[str],
    ) -> None:
        self._known = known
        edges = (
            task_records.of_kind(known, "edge")
            .toArrow()
            .sort_by([("src", "ascending"), ("epoch", "ascending"), ("block", "ascending")])
        )
        found = []
        previous: dict[tuple[str, int], int] = {}
        for edge in edges.to_pylist():
            source, low = (edge["src"], edge["epoch"]), edge["lo_key"]
            before = [previous.get(source), reached.get(source, {}).get(edge["day"])]
            lower = [key for key in before if key is not None and key < low]
            gap = low - max(lower) - 1 if lower else 0
            previous[source] = edge["hi_key"]
            if gap and edge["day"] in days:
                found.append(edge | {"gap": min(gap, ENDLESS)})
        ids = sorted({edge["listening_set_id"] for edge in found})
        sets = task_records.of_kind(known, "set").where(F.col("set_id").isin(ids)) if ids else None
        hosts = {row.set_id: row.hosts.split("\n") for row in sets.collect()} if sets else {}
        batches = [
            task_records.records("message", **_columns("message", found, seq_key="lo_key", gap_before="gap")),
            task_records.records("missed", **_columns("missed", [one | _range(one) for one in found])),
        ]
        each = [one | {"host": host} for one in found for host in hosts[one["listening_set_id"]]]
        batches += [
            task_records.records(kind, **_columns(kind, each, lost_everywhere="gap")) for kind in ("link", "channel")
        ]
        self._found = task_records.frame_of(spark, pa.Table.from_batches(batches, task_records.RECORD))

    def with_kind(self, kind: str) -> DataFrame:
        """Records of a kind, and what the gaps add to them."""
        return task_records.of_kind(self._known, kind).unionByName(task_records.of_kind(self._found, kind))

    def added(self, messages: DataFrame) -> DataFrame:
        """Messages with these gaps."""
        gaps = task_records.of_kind(self._found, "message").select(
            "src", "epoch", "seq_key", F.col("gap_before").alias("gap")
        )
        return (
            messages.join(F.broadcast(gaps), ["src", "epoch", "seq_key"], "left")
            .withColumn("gap_before", F.coalesce("gap_before", "gap", F.lit(0)))
            .withColumn("first_ts", F.timestamp_micros("first"))
        )


def _columns(kind: str, edges: Sequence[Mapping[str, object]], **renamed: str) -> dict[str, list[object]]:
    """Columns of records of a kind, from edges; numbers that an edge does not have are 0."""
    names = task_records.KINDS[kind]
    return {name: [edge.get(renamed.get(name, name), edge.get(name, 0)) for edge in edges] for name in names}


def _range(edge: Mapping[str, int]) -> dict[str, object]:
    low, high = edge["lo_key"] - edge["gap"], edge["lo_key"] - 1
    return {"lo_key": low, "hi_key": high, "host": None}
