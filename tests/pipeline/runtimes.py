"""What DuckDB and the library of tables keep for a process from their first use on: threads, descriptors, a folder."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest

from bccnd.pipeline.units.engine import spill_folder


@pytest.fixture(scope="session", autouse=True)
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start them, so that no test is the first to write, read or make a table."""
    spill_folder()
    table = str(tmp_path_factory.mktemp("runtimes") / "table")
    deltalake.write_deltalake(table, pa.table({"number": [1]}))
    deltalake.DeltaTable(table).to_pyarrow_table()
