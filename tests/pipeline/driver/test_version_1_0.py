"""A journal and tables that version 1.0.0 has written: `tests/golden/version_1_0/README.md` says how."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from bccnd import pipeline
from bccnd.errors import PipelineError
from bccnd.pipeline.driver.build import build
from bccnd.pipeline.driver.incremental import once
from bccnd.pipeline.report.table_reader import Tables
from bccnd.pipeline.tables import schema
from tests.pipeline.fleets import computed
from tests.support import ROOT

GOLDEN: Final = ROOT / "tests/golden/version_1_0"
JOURNAL: Final = GOLDEN / "journal"


def test_its_tables_are_made_again_with_all_their_rows_and_columns(spark: SparkSession) -> None:
    tables = computed(spark, JOURNAL).tables
    rows = dict.fromkeys(schema.TABLES, 0)
    for name in rows:
        files = sorted((GOLDEN / "tables" / name).glob("*/*.parquet"))
        if not files:
            continue
        of_1_0 = ds.dataset(files).to_table()
        now = tables[name].select(*of_1_0.column_names).toArrow().cast(of_1_0.schema)
        assert sorted(now.to_pylist(), key=str) == sorted(of_1_0.to_pylist(), key=str), name
        rows[name] = len(now)
    assert [count for count in rows.values() if count] == [1, 2, 8, 2, 2, 2, 1, 3, 1]
    assert [name for name, count in rows.items() if not count] == ["liveness", "skew"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "use",
    [
        lambda spark, tables: build(spark, str(JOURNAL), tables),
        lambda spark, tables: once(spark, str(JOURNAL), tables),
        lambda spark, tables: pipeline.read(spark, tables, "link_loss"),
        lambda spark, tables: Tables(tables),
    ],
    ids=["build", "stream", "read", "report"],
)
def test_its_tables_are_refused_and_stay_as_they_are(
    spark: SparkSession, tmp_path: Path, use: Callable[[SparkSession, str], Any]
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(GOLDEN / "tables", tables)
    before = contents(tables)
    assert len(before) == 15
    with pytest.raises(PipelineError) as refused:
        use(spark, str(tables))
    assert refused.value.reason == "old_tables"
    assert "bccn pipeline build JOURNAL --out FOLDER" in str(refused.value)
    assert contents(tables) == before
