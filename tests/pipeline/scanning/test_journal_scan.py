"""What a task reads: all of its files or none; blocks of messages are small enough for memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bccnd.errors import PipelineError
from bccnd.journal.file_names import ObsFile
from bccnd.pipeline.driver import compute
from bccnd.pipeline.inputs.journal_files import CHANGED, Journal, gone, repeated
from bccnd.pipeline.scanning import journal_scan
from examples.fleet_model import Fleet, Loss, Source
from tests.pipeline.fleets import check
from tests.pipeline.journals import put, rows


def test_a_task_whose_file_went_away_fails(tmp_path: Path) -> None:
    """It may be one that is run again because an executor was lost: other rows than before would be wrong tables."""
    put(tmp_path, "h1", "j1", 1, rows(1, 3))
    last = put(tmp_path, "h1", "j1", 4, rows(4, 3))
    inputs = Journal(str(tmp_path)).files
    plan = journal_scan.Plan(str(tmp_path), None, {}, 1, 16, {})
    assert list(journal_scan.read(inputs, plan))
    last.unlink()
    with pytest.raises(PipelineError) as failed:
        list(journal_scan.read(inputs, plan))
    assert failed.value.reason == CHANGED


def test_such_a_task_has_the_journal_listed_anew(spark: SparkSession) -> None:
    file = ObsFile("h1", "2026-03-01", "j1", 7)
    tries: list[ObsFile] = []

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise gone(f"s3://fleet/journal/{file.path}")

    def run() -> int:
        frame = spark.range(3)
        return (frame if tries else frame.mapInArrow(fail, frame.schema)).count()

    assert repeated(run, tries.append) == 3
    assert tries == [file]

    def always() -> int:
        raise gone(file.path)

    with pytest.raises(PipelineError) as failed:
        repeated(always)
    assert failed.value.reason == CHANGED


def test_blocks_of_many_receivers_are_smaller() -> None:
    for hosts in (1, 3, 20, 200, 5000):
        assert hosts << journal_scan.block_of(hosts) <= max(1 << 18, hosts)
    assert journal_scan.block_of(1) == 16
    assert journal_scan.block_of(200) == 9


def test_tables_do_not_depend_on_the_size_of_blocks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(
        ("a", "b", "c"),
        (Source("a/x/1", "a", 5, heartbeat=5), Source("b/y", "b", 9, start=1, own=False)),
        duration=60,
        losses=(Loss("c", probability=0.2), Loss(None, "a/x/1", every=7), Loss("b", "a/x/1", 20, 30, every=1)),
    )
    monkeypatch.setattr(compute, "block_of", lambda hosts: 2)
    check(spark, fleet, tmp_path)
