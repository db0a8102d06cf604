"""The programs of docs/pipeline.md that read tables without Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.pipeline.reporting import START, put, write
from tests.support import ROOT

PAGE = (ROOT / "docs/pipeline.md").read_text()


def run(program: str, folder: Path) -> dict[str, Any]:
    """Run a program, with tables and files in a folder. Returns its variables."""
    assert "/var/lib/bccnd/" in program
    variables: dict[str, Any] = {}
    exec(program.replace("/var/lib/bccnd/", f"{folder}/"), variables)
    return variables


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "tables", ["h01", "h02"], ["h01/a", "h02/a"], missed=lambda host, *_: 6 if host == "h02" else 0)
    later = {"host": "h01", "src": "h02/a", "win": START + 24 * 60 * 60_000_000, "expected": 5, "seen": 5}
    put(tmp_path / "tables", "link_loss", [later], "2026-11-22")
    put(tmp_path / "tables", "_state/sessions", [])
    return tmp_path


def test_a_day_of_a_table_as_a_frame(folder: Path) -> None:
    (program,) = re.findall(r"```python\n(import datetime\n.*?)```", PAGE, re.DOTALL)
    frame = run(program, folder)["frame"]
    assert len(frame) == 2 * 2 * 60
    assert frame["lost_here"].sum() == 6 * 60


def test_a_file_for_dashboards_has_all_tables_of_the_last_build(folder: Path) -> None:
    (statement,) = re.findall(r"dataset for a chart.*?```sql\n(.*?)```", PAGE, re.DOTALL)
    for rows in (121, 122):
        run((ROOT / "examples/dashboards.py").read_text(), folder)
        with duckdb.connect(folder / "dashboards.duckdb", read_only=True) as database:
            percent = {row[:2]: row[2] for row in database.sql(statement).fetchall()}
            assert len(percent) == rows
            assert [sum(loss for (_, at), loss in percent.items() if at == host) for host in ("h01", "h02")] == [0, 300]
            assert database.sql("SELECT count(*) FROM liveness").fetchall() == [(0,)]
            assert database.sql("SELECT max(day)::VARCHAR FROM link_loss").fetchall() == [("2026-11-22",)]
        # The program is run again while the file is in use.
        again = {"host": "h01", "src": "h02/a", "win": START + 25 * 60 * 60_000_000, "expected": 5}
        put(folder / "tables", "link_loss", [again], "2026-11-22")
