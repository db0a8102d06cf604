"""A file that is not as it was written is found, and one with a checksum is a Parquet file for every reader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from bccnd.journal import files, schema
from bccnd.journal.checksums import verify
from bccnd.journal.damage import DamagedFileError
from tests.pipeline.journals import rows

HERE = pafs.LocalFileSystem()
RECORDS = files.obs_table("relay01", "j", 1, rows(1, 300))


def sealed(path: Path, table: pa.Table = RECORDS) -> Path:
    files.write(HERE, str(path.parent), path.name, table)
    return path


def of_another_writer(path: Path, **options: Any) -> Path:
    pq.write_table(RECORDS, path, **options)
    return path


def is_damaged(path: Path) -> bool:
    try:
        verify(HERE, str(path))
    except DamagedFileError as error:
        return bool(str(error))
    return False


def flips(size: int, count: int) -> Iterator[int]:
    return iter(random.Random(54).sample(range(8 * size), min(count, 8 * size)))


@pytest.mark.parametrize(("table", "count"), [(RECORDS, 400), (pa.table({"a": [1]}), 1500)], ids=["large", "tiny"])
def test_every_flipped_bit_is_found(tmp_path: Path, table: pa.Table, count: int) -> None:
    path = sealed(tmp_path / "x.parquet", table)
    verify(HERE, str(path))
    whole = path.read_bytes()
    for bit in flips(len(whole), count):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert is_damaged(path), f"bit {bit} of {8 * len(whole)}"


@pytest.mark.parametrize("size", [0, 3, 11, 500, -1])
def test_a_file_that_was_cut_off_is_found(tmp_path: Path, size: int) -> None:
    path = sealed(tmp_path / "x.parquet")
    path.write_bytes(path.read_bytes()[:size])
    assert is_damaged(path)


def test_pages_of_another_writer_are_checked_by_their_checksums(tmp_path: Path) -> None:
    verify(HERE, str(of_another_writer(tmp_path / "without.parquet")))
    path = of_another_writer(tmp_path / "with.parquet", write_page_checksum=True, compression="none")
    verify(HERE, str(path))
    whole = path.read_bytes()
    place = whole.index(b"payload 200")
    path.write_bytes(whole[:place] + b"q" + whole[place + 1 :])
    assert pq.read_table(path).num_rows == 300
    assert is_damaged(path)


def test_a_file_that_is_away_is_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verify(HERE, str(tmp_path / "x.parquet"))


def test_other_readers_see_the_rows_and_no_checksum(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x.parquet")
    assert pq.read_table(path, page_checksum_verification=True).equals(RECORDS)
    assert ds.dataset(path).to_table().equals(RECORDS)
    with duckdb.connect() as connection:
        (found,) = connection.sql(f"SELECT count(*), sum(rec_no), max(share) FROM '{path}'").fetchall()
    assert found == (300, 300 * 301 // 2, schema.share_of("relay01/a/1", ""))
