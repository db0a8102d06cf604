"""Which receivers heard which sources: what most have in common is kept once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from bccnd.pipeline.hosts.reach import find_reach

DAY = "2026-03-01"


def test_the_usual_segments_of_a_day_and_the_sources_that_have_others(spark: SparkSession) -> None:
    rows: list[tuple[str, str, str, str | None]] = [
        (DAY, f"s{number}", host, "lan") for number in range(30) for host in ("a", "b")
    ]
    rows += [(DAY, "far", "c", "wan"), (DAY, "s1", "c", "wan"), ("2026-03-02", "s1", "a", None)]
    # tasks emit a source more than once
    frame = spark.createDataFrame(rows + rows[:7], "day string, src string, host string, segment string")
    reach = find_reach(frame)
    assert reach.usual == {DAY: {"lan"}, "2026-03-02": {""}}
    assert reach.unusual == {(DAY, "far"): {"wan"}, (DAY, "s1"): {"lan", "wan"}}
    assert sorted(map(list, reach.hearers[DAY])) == [["a", "b"], ["a", "b", "c"], ["c"]]
    assert find_reach(frame.where("false")) == ({}, {}, {})
