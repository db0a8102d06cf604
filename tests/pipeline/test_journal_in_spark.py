"""Spark reads the files of a journal without a line of this project."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.journal import schema
from tests.pipeline.journals import put, rows


@pytest.mark.slow
def test_spark_reads_a_file_with_a_checksum(tmp_path: Path, spark: SparkSession) -> None:
    put(tmp_path, "relay01", "j", 1, rows(1, 300))
    frame = spark.read.parquet(str(tmp_path / "obs"))
    assert dict(frame.dtypes)["share"] == "smallint"
    row = frame.selectExpr("count(*)", "sum(rec_no)", "max(share)").first()
    assert row == (300, 300 * 301 // 2, schema.share_of("relay01/a/1", ""))
