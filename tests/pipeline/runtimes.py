"""What the library of tables keeps for its process from its first use on: threads, and descriptors for them."""

from __future__ import annotations

import deltalake
import pyarrow as pa
import pytest


@pytest.fixture(scope="session", autouse=True)
def runtimes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start them, so that no test is the first to write or read a table."""
    table = str(tmp_path_factory.mktemp("runtimes") / "table")
    deltalake.write_deltalake(table, pa.table({"number": [1]}))
    deltalake.DeltaTable(table).to_pyarrow_table()
