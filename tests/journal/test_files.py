"""Files are there whole, or not at all."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from bccnd.core.formats.tap_record import observe
from bccnd.journal import files, schema
from tests.e2e.harness import datagram

HERE = pafs.LocalFileSystem()
ROWS = [observe("accepted", "lan", 1, 1000 * number, "10.0.0.1:5400", b"BCCN1[7]a:1:b|c") for number in range(3)]


@pytest.mark.parametrize("inside", ["", "deep/below"])
def test_any_file_system_of_pyarrow_holds_a_journal(tmp_path: Path, inside: str) -> None:
    filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    for rows in (ROWS, ROWS[:1]):
        files.write(filesystem, inside, "obs/x.parquet", files.obs_table("h", "j", 1, rows))
        assert pq.read_table(tmp_path / inside / "obs/x.parquet").num_rows == len(rows)


def test_what_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "obs/x.parquet/in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        files.write(HERE, str(tmp_path), "obs/x.parquet", files.obs_table("h", "j", 1, ROWS))
    assert [path.name for path in (tmp_path / "obs").iterdir()] == ["x.parquet"]


def test_records_are_sorted_in_groups_of_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_GROUP", 10)
    observed = [
        observe(
            "accepted", "lan", 1, 1000 * number, "10.0.0.1:5400", datagram(f"h/{number % 7}", 90 - number, "a", b"")
        )
        for number in range(60)
    ]
    unreadable = observe("bad_envelope", "lan", 1, 5, "10.0.0.1:5400", b"noise")
    records = files.obs_table("relay01", "j", 1, [*observed, unreadable])
    files.write_records(HERE, str(tmp_path), "x.parquet", records)
    read = pq.read_table(tmp_path / "x.parquet")
    assert read.schema.equals(schema.OBS)
    rows = read.to_pylist()
    assert sorted(rows, key=itemgetter("rec_no")) == records.to_pylist()
    assert [row["share"] for row in rows] == [schema.share_of(row["src"], "relay01") for row in rows]
    keys = [(row["share"], row["src"] is None, row["src"], row["seq_key"], row["rec_no"]) for row in rows]
    assert keys == sorted(keys, key=lambda key: (key[0], key[1], key[2] or "", key[3] or 0, key[4]))
    groups = [pq.read_metadata(tmp_path / "x.parquet").row_group(number) for number in range(7)]
    limits = [groups[number].column(len(schema.OBS) - 1).statistics for number in range(7)]
    assert all(before.max <= after.min for before, after in pairwise(limits))


def test_a_uri_names_a_journal_too(tmp_path: Path) -> None:
    assert files.open_root(str(tmp_path))[1] == files.open_root(f"file://{tmp_path}/")[1] == str(tmp_path)
    with pytest.raises(pa.ArrowInvalid):
        files.open_root("nonsense://x")
