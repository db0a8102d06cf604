"""Files are there whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from bccnd.core.formats.tap_record import observe
from bccnd.journal import files, schema

ROWS = [observe("accepted", "lan", 1, 1000 * number, "10.0.0.1:5400", b"BCCN1[7]a:1:b|c") for number in range(3)]


def test_rows_are_a_table_with_the_columns_of_the_journal() -> None:
    table = files.obs_table("h", "j", 7, ROWS)
    assert table.schema.equals(schema.OBS)
    assert table.column("rec_no").to_pylist() == [7, 8, 9]
    assert files.obs_table("h", "j", 1, []).num_rows == 0


@pytest.mark.parametrize("inside", ["", "deep/below"])
def test_any_file_system_of_pyarrow_will_do_and_a_file_that_is_there_is_replaced(tmp_path: Path, inside: str) -> None:
    filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    for rows in (ROWS, ROWS[:1]):
        files.write(filesystem, inside, "obs/x.parquet", files.obs_table("h", "j", 1, rows))
        assert pq.read_table(tmp_path / inside / "obs/x.parquet").num_rows == len(rows)


def test_what_is_under_way_has_no_name_and_leaves_nothing(tmp_path: Path) -> None:
    def fails() -> None:
        with files.Writer(pafs.LocalFileSystem(), str(tmp_path), "obs/x.parquet", schema.OBS) as writer:
            writer.add(files.obs_table("h", "j", 1, ROWS))
            assert [path.name for path in (tmp_path / "obs").iterdir()] == [".x.parquet"]
            raise RuntimeError("in the midst")

    with pytest.raises(RuntimeError, match="in the midst"):
        fails()
    assert list((tmp_path / "obs").iterdir()) == []


def test_a_uri_names_a_journal_too(tmp_path: Path) -> None:
    assert files.open_root(str(tmp_path))[1] == files.open_root(f"file://{tmp_path}/")[1] == str(tmp_path)
    with pytest.raises(pa.ArrowInvalid):
        files.open_root("nonsense://x")
