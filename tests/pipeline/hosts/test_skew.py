"""Which clock is compared with which, and how large a part of the messages is taken for that."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bccnd.pipeline.hosts import clocks
from examples.fleet_model import Fleet, Source
from examples.simulation import write
from tests.pipeline.fleets import computed


def test_hosts_that_share_sources_share_the_reference_with_most_rows() -> None:
    rows = {"a": 5, "b": 9, "c": 9, "x": 1, "y": 1, "alone": 3}
    together = [("a", "b"), ("b", "c"), ("y", "x"), ("alone",)]
    assert clocks.references(rows, together) == {"a": "b", "b": "b", "c": "b", "x": "x", "y": "x", "alone": "alone"}


def test_a_part_is_a_power_of_two_and_small_enough() -> None:
    assert [clocks.parts_of(rows) for rows in (0, clocks.SAMPLE, clocks.SAMPLE + 1, 3 * clocks.SAMPLE, 20_000_000)] == [
        *(1, 1, 2, 4, 64)
    ]


def test_clocks_are_as_far_apart_as_they_were_set(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers that come in two epochs do not mislead, and hosts that share nothing are not compared."""
    fleet = Fleet(
        ("a", "b", "c", "far"),
        (Source("a/x/1", "a", 10), Source("b/y/1", "b", 10, start=1, own=False), Source("far/z/1", "far", 5)),
        30,
        offsets={"b": 3600.5, "c": -0.25, "far": 9.0},
        segments={"far": "other"},
    )
    write(fleet, str(tmp_path))
    result = computed(spark, tmp_path)
    rows = {row["host"]: row for row in result.tables["skew"].collect()}
    assert rows.keys() == {"b", "c"}
    for host, apart in (("b", 3_600_500_000), ("c", -250_000)):
        assert rows[host]["ref_host"] == "a"
        assert abs(rows[host]["p50_us"] - apart) < 100  # what datagrams take on their way differs by 200 at most
        assert apart - 200 <= rows[host]["p05_us"] <= rows[host]["p50_us"] <= rows[host]["p95_us"] <= apart + 200
        assert rows[host]["n"] == 600
