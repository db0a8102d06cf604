"""A file is used if its rows are those that belong there, whatever else it has, and named if they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bccnd.pipeline.inputs.journal_listing import list_records
from bccnd.pipeline.inputs.verification import JournalFile, verify
from bccnd.pipeline.lake.place import Root
from tests.pipeline.journals import put, rows

Change = Callable[[pa.Table], pa.Table]


def replace(name: str, make: Callable[[pa.ChunkedArray], object]) -> Change:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.schema.get_field_index(name), name, make(table[name]))

    return change


def looked_at(journal: Path) -> list[JournalFile | str | None]:
    root = Root(str(journal))
    return verify(root, list_records(root).files)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return put(tmp_path, "relay01", "j1", 7, rows(7, 5))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table,
        lambda table: table.drop_columns(["payload", "share"]),
        lambda table: table.take([3, 1, 4, 0, 2]),
        replace("host", lambda column: column.cast(pa.large_string())),
        replace("rec_no", lambda column: column.cast(pa.uint64())),
        replace("ts", lambda column: column.cast(pa.timestamp("ns", "UTC"))),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_files_of_other_writers_are_read(path: Path, tmp_path: Path, change: Change, statistics: bool) -> None:
    table = change(pq.read_table(path, partitioning=None))
    pq.write_table(table, path, write_statistics=statistics)
    (found,) = looked_at(tmp_path)
    assert isinstance(found, JournalFile), found
    names = table.column_names
    assert (found.first_rec, found.rows) == (7, 5)
    assert (found.has_share, found.has_payload) == ("share" in names, "payload" in names)
    assert (found.high_us - found.low_us, found.segments) == (4_000_000, ("lan",))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda table: table.drop_columns(["verdict"]), "it has no column verdict"),
        (replace("seq_key", lambda column: column.cast(pa.string())), "its column seq_key is string, not int64"),
        (replace("rec_no", lambda _: pa.array([7, 8, 9, 10, 12])), "numbered 7 to 12"),
        (replace("rec_no", lambda _: pa.array([7, 8, 8, 10, 11])), "or some twice"),
        (replace("host", lambda _: pa.array(["relay01"] * 4 + ["relay02"])), "its column host has relay01 to relay02"),
        (replace("journal_id", lambda _: pa.array(["j2"] * 5)), "its column journal_id has j2"),
        (replace("ts", lambda _: pa.array([1] * 5, pa.timestamp("us", "UTC"))), "its column ts has 1970-01-01"),
        (replace("host", lambda _: pa.array([None] * 5, pa.string())), "nulls"),
        (lambda table: table.slice(0, 0), "it has no records"),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_a_file_with_rows_of_elsewhere_is_damaged(
    path: Path, tmp_path: Path, change: Change, why: str, statistics: bool
) -> None:
    pq.write_table(change(pq.read_table(path, partitioning=None)), path, write_statistics=statistics)
    (found,) = looked_at(tmp_path)
    assert isinstance(found, str)
    assert why in found


def test_a_file_that_has_gone_is_none(path: Path, tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    listed = list_records(root).files
    path.unlink()
    assert verify(root, listed) == [None]
