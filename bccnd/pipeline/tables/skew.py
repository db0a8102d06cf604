"""How far the clocks of hosts are apart: what each says of the same messages, against one of them.

Law: only messages that both hosts accepted count, and only numbers that neither has seen twice, as a number may come in
more than one epoch of its source. Hosts that hear of the same sources, however indirectly, have one reference: the one
with most rows that were new, of several the first by name; it has no row of its own. Of many messages a part is taken,
always the same, by their numbers; ``n`` says how many there were. What a datagram takes on its way is part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bccnd.pipeline.align import HORIZON
from bccnd.pipeline.runs import DAY

#: rows of a day that are taken, about
SAMPLE: Final = 1_000_000
#: rows that were new when they came, of whatever kind
ACCEPTED: Final = ("accepted", "reordered", "restart", "not_addressed", "looped")


def references(rows: Mapping[str, int], together: Iterable[Iterable[str]]) -> dict[str, str]:
    """The reference of each host, from the new rows of each and the sets of hosts that hear the same source."""
    group = {host: host for host in rows}

    def top(host: str) -> str:
        while group[host] != host:
            host = group[host]
        return host

    for hosts in together:
        first, *others = hosts
        for other in others:
            group[top(other)] = top(first)
    best: dict[str, str] = {}
    for host in sorted(rows, key=lambda host: (-rows[host], host)):
        best.setdefault(top(host), host)
    return {host: best[top(host)] for host in rows}


def skew(rows: DataFrame, reference: DataFrame) -> DataFrame:
    """The table, from rows as `runs.prepared` has them and the ``reference`` (date, day, host, ref_host, parts) of each
    host; one of so many ``parts`` of a day's messages is taken."""
    taken = (
        rows.filter("tracked")
        .filter(F.col("verdict").isin(*ACCEPTED))
        .withColumn("date", F.floor(F.col("us") / DAY))
        .join(F.broadcast(reference), ["host", "date"])
        .filter("parts = 1 or pmod(xxhash64(src, seq_key), parts) = 0")
    )
    every = F.count("*")
    copies = (F.count_if(F.col("verdict") == "looped") == every) & (F.max("us") - F.min("us") <= HORIZON)
    single = (
        taken.groupBy("day", "src", "seq_key", "host", "ref_host")
        .agg(F.min("us").alias("us"), ((every == 1) | copies).alias("once"))
        .filter("once")
    )
    theirs = single.filter("host != ref_host").select("day", "src", "seq_key", "host", "ref_host", "us")
    its = single.filter("host = ref_host").select(
        "day", "src", "seq_key", F.col("host").alias("ref_host"), F.col("us").alias("ref_us")
    )
    apart = theirs.join(its, ["day", "src", "seq_key", "ref_host"]).withColumn("apart", F.col("us") - F.col("ref_us"))

    def percentile(share: float) -> Column:
        return F.round(F.percentile("apart", share)).cast("bigint")

    return apart.groupBy("day", "host", "ref_host").agg(
        percentile(0.05).alias("p05_us"),
        percentile(0.5).alias("p50_us"),
        percentile(0.95).alias("p95_us"),
        F.count("*").alias("n"),
    )
