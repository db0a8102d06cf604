"""Tables in Spark: of one build, with its filters and columns pruned, on a disk and where Spark has no file system."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bccnd.pipeline
from bccnd.errors import PipelineError
from tests.pipeline.lake.test_delta import THREE, run
from tests.pipeline.lake.test_delta import where as where


def test_a_table_stays_the_one_that_was_read(spark: SparkSession, where: str) -> None:
    run(where, THREE)
    table = bccnd.pipeline.read(spark, where, "t")
    assert [field.simpleString() for field in table.schema] == ["x:int", "day:date"]
    run(where, {"01": [], "02": [], "03": [], "04": [4]})
    assert sorted((row.x, row.day.day) for row in table.collect()) == [(1, 1), (2, 2), (3, 3)]
    assert [row.x for row in table.where("day = '2026-01-02' AND x > 0").collect()] == [2]
    assert table.where("day > DATE'2026-01-01' AND x <= 2").count() == 1
    assert [tuple(row) for row in bccnd.pipeline.read(spark, where, "t").collect()] == [(4, datetime.date(2026, 1, 4))]
    assert bccnd.pipeline.read(spark, where, "u").count() == 0
    with pytest.raises(PipelineError, match=r"no table 'v' in .*; its tables are: t, u"):
        bccnd.pipeline.read(spark, where, "v")


@pytest.mark.parametrize("name", ["t:10:00", "a b", "100%", "#?*", "{a,b}", "ü"])
def test_tables_are_read_from_a_folder_of_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    run(str(tmp_path / name), THREE)
    assert bccnd.pipeline.read(spark, str(tmp_path / name), "t").count() == 3


def test_spark_reads_only_what_a_query_needs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(str(tmp_path), THREE)
    bccnd.pipeline.read(spark, str(tmp_path), "t").where("day = '2026-01-02' AND x = 1").select("day").explain()
    plan = capsys.readouterr().out
    assert "PartitionFilters: [isnotnull(day" in plan
    assert "EqualTo(x,1)" in plan
