"""What tests of the pipeline share: a journal, its tables, and one Spark session, which takes long to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline.driver import spark as spark_driver
from bccnd.pipeline.driver.build import build
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from tests.pipeline import object_store, threedays
from tests.pipeline.runtimes import runtimes as runtimes

# Tests run side by side.
EmbeddedRunner.threads = 1

#: seconds that a test may take: some make all tables several times, each time with a Spark of its own
PATIENCE = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(PATIENCE))
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    yield spark_driver.start("local[2, 3]", conf=threedays.SMALL)
    spark_driver.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server (object_store.py)."""
    with object_store.serve(tmp_path_factory.mktemp("s3") / "log") as address:
        yield address


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small journal over three days; not to be changed."""
    return threedays.written(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def built(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the small journal, made at once."""
    tables = tmp_path_factory.mktemp("built") / "tables"
    build(EmbeddedRunner(), str(small), str(tables))
    return tables
