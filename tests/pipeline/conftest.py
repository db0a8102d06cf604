"""One Spark session for all tests of the pipeline: starting one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session.start(
        "local[2, 3]", name="tests", spark_sql_shuffle_partitions="2", spark_default_parallelism="2"
    )
    yield started
    started.stop()
