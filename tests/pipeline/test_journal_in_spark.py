"""Spark reads a journal without a line of this project, as docs/captures.md says."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.journal import schema
from tests.pipeline.journals import put, row, rows
from tests.support import ROOT

PAGE = (ROOT / "docs/captures.md").read_text()
BATCH, STREAM = re.findall(r"```python\n(\w+ = spark\.read\.parquet.*?)```", PAGE, re.DOTALL)
PLACE = "/var/lib/bccnd/journal"


@pytest.mark.slow
def test_a_stream_reads_each_record_once_and_a_table_all(tmp_path: Path, spark: SparkSession) -> None:
    journal = tmp_path / "journal"
    paths = [put(tmp_path / "all", "relay01", "j", 1 + 10 * part, rows(1 + 10 * part, 10)) for part in range(3)]
    late = [row(number, at=-40 * 86_400 + number) for number in range(5)]
    paths.append(put(tmp_path / "all", "relay02", "k", 1, late))
    # the one that comes last was written long before the others
    os.utime(paths[3], (1_000_000_000, 1_000_000_000))
    for program in (BATCH, STREAM):
        assert PLACE in program
    read = []
    for part in (paths[1:2], paths[2:3], paths[:1], paths[3:]):
        for path in part:
            place = journal / path.relative_to(tmp_path / "all")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)
        names = {"spark": spark}
        exec(STREAM.replace(PLACE, str(journal)), names)
        records = names["records"]
        writing = records.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))  # type: ignore[attr-defined]
        query = writing.trigger(availableNow=True).start(str(tmp_path / "read"))
        assert query.awaitTermination(100)
        read.append(spark.read.parquet(str(tmp_path / "read")).count())
    assert read == [10, 20, 30, 35]
    names = {"spark": spark}
    exec(BATCH.replace(PLACE, str(journal)), names)
    frame = names["journal"]
    assert dict(frame.dtypes)["share"] == "smallint"  # type: ignore[attr-defined]
    found = frame.selectExpr("count(*)", "max(share)").first()  # type: ignore[attr-defined]
    assert found == (35, schema.share_of("relay01/a/1", ""))
