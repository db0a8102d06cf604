"""Which receivers heard which sources, and on which segments; Spark puts it together.

Invariant: what the driver keeps of it does not grow with sources x hosts x days: on most days all sources are heard on
the same segments; those that are not are listed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


class Reach(NamedTuple):
    """``hearers``: for each day the sets of hosts that heard the same source; ``usual``: the segments on which most
    sources of a day were heard; ``unusual``: those of each other (day, src)."""

    hearers: Mapping[str, Collection[Collection[str]]]
    usual: Mapping[str, frozenset[str]]
    unusual: Mapping[tuple[str, str], frozenset[str]]


def find_reach(records: DataFrame) -> Reach:
    """The reach of all sources, from records `reach` (`task_records.KINDS`)."""
    sources = records.groupBy("day", "src").agg(
        F.sort_array(F.collect_set("host")).alias("hosts"),
        F.sort_array(F.collect_set(F.coalesce("segment", F.lit("")))).alias("segments"),
    )
    hearers: dict[str, list[list[str]]] = {}
    counts: dict[str, dict[frozenset[str], int]] = {}
    for day, hosts, segments, count in sources.groupBy("day", "hosts", "segments").count().collect():
        hearers.setdefault(day, []).append(hosts)
        of_day = counts.setdefault(day, {})
        of_day[frozenset(segments)] = of_day.get(frozenset(segments), 0) + count
    usual = {
        day: max(of_day, key=lambda segments: (of_day[segments], sorted(segments))) for day, of_day in counts.items()
    }
    mixed = [day for day, of_day in counts.items() if len(of_day) > 1]
    rows = sources.where(F.col("day").isin(mixed)).select("day", "src", "segments").collect() if mixed else ()
    unusual = {(day, src): frozenset(segments) for day, src, segments in rows if frozenset(segments) != usual[day]}
    return Reach(hearers, usual, unusual)
