"""Tables of a journal that version 1.0.0 has written: `tests/golden/version_1_0/README.md` says how."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.pipeline.fleets import computed
from tests.support import ROOT


def test_its_losses_and_refusals_are_counted(spark: SparkSession) -> None:
    tables = computed(spark, ROOT / "tests/golden/version_1_0/journal").tables
    links = tables["link_loss"].select("src", "expected", "seen", "lost_everywhere", "dup", "late").collect()
    assert sorted(map(tuple, links)) == [("far/app/1", 9, 7, 2, 1, 1), ("near/cafe/2", 1, 1, 0, 0, 0)]
    refused = tables["integrity"].select("host", "verdict", "n").collect()
    assert list(map(tuple, refused)) == [("relay01", "bad_envelope", 1)]
