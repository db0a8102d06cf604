"""Which bit of a day's masks stands for which host.

Law: the hosts of a day are those with a row on it, or with a session that overlaps it, by their own clocks (clocks.py);
their bits are 0, 1, 2, ... by name, so that it does not matter in which order files arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

#: day -> host -> bit
Dims = Mapping[str, Mapping[str, int]]


def bits(hosts: Iterable[str]) -> dict[str, int]:
    """The bit of each host of a day."""
    return {host: bit for bit, host in enumerate(sorted(set(hosts)))}


def host_dim(spark: SparkSession, dims: Dims) -> DataFrame:
    """The table."""
    rows = [(host, bit, day) for day, hosts in sorted(dims.items()) for host, bit in hosts.items()]
    return spark.createDataFrame(rows, "host string, bit int, day string")
