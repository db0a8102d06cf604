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
from bccnd.pipeline.runs import DAY, day_of

#: rows of a day that are taken, at most: enough for percentiles to the microsecond or so, and no more work for it
SAMPLE: Final = 500_000
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


def parts_of(rows: int) -> int:
    """Of how many parts of a day's messages one is taken: a power of two, so that larger parts hold smaller ones."""
    return 1 << max(0, -(-rows // SAMPLE) - 1).bit_length()


def skew(rows: DataFrame, reference: DataFrame, least: int) -> DataFrame:
    """The table, from rows as `runs.prepared` has them and the ``reference`` (date, host, ref_host, parts) of hosts;
    one of so many ``parts`` of a day's messages is taken, and nowhere more than one of ``least``."""
    taken = (
        rows.withColumn("message", F.xxhash64("src", "seq_key"))
        .filter(F.pmod("message", F.lit(least)) == 0)
        .filter(F.col("tracked") & F.col("verdict").isin(*ACCEPTED))
        .withColumn("date", F.floor(F.col("us") / DAY))
        .join(F.broadcast(reference), ["host", "date"])
        .filter("pmod(message, parts) = 0")
    )
    # what looped may be there in copies
    every = F.count("*")
    copies = (F.count_if(F.col("verdict") == "looped") == every) & (F.max("us") - F.min("us") <= HORIZON)
    single = (
        taken.groupBy("date", "message", "host", "ref_host")
        .agg(F.min("us").alias("us"), ((every == 1) | copies).alias("once"))
        .filter("once")
    )
    theirs = single.filter("host != ref_host").select("date", "message", "host", "ref_host", "us")
    its = single.filter("host = ref_host").select(
        "date", "message", F.col("host").alias("ref_host"), F.col("us").alias("ref_us")
    )
    apart = theirs.join(its, ["date", "message", "ref_host"]).withColumn("apart", F.col("us") - F.col("ref_us"))

    def percentile(share: float) -> Column:
        return F.round(F.percentile("apart", share)).cast("bigint")

    return (
        apart.groupBy("date", "host", "ref_host")
        .agg(
            percentile(0.05).alias("p05_us"),
            percentile(0.5).alias("p50_us"),
            percentile(0.95).alias("p95_us"),
            F.count("*").alias("n"),
        )
        .withColumn("day", day_of(F.col("date") * DAY))
    )
