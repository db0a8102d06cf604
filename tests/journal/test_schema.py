"""Shares are the same everywhere, and journals of other writers become tables with the columns of the journal."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bccnd.journal import files, schema
from bccnd.journal.damage import DamagedFileError
from tests.pipeline.journals import row, rows

RECORDS = files.obs_table("relay01", "j", 1, [*rows(1, 3), row(4)._replace(src=None, seq_key=None)])


def test_a_share_is_the_first_byte_of_a_digest() -> None:
    assert schema.share_of("relay01/a/1", "h") == int(hashlib.md5(b"relay01/a/1").hexdigest()[:2], 16)
    assert schema.share_of(None, "h") == schema.share_of("h", "x") == hashlib.md5(b"h").digest()[0]
    shares = [*[schema.share_of("relay01/a/1", "")] * 3, schema.share_of("relay01", "")]
    assert RECORDS["share"].to_pylist() == shares
    assert schema.shares_of(RECORDS["src"].dictionary_encode(), RECORDS["host"]).to_pylist() == shares


@pytest.mark.parametrize(
    "other",
    [
        RECORDS,
        RECORDS.drop_columns(["share"]),
        RECORDS.select(RECORDS.column_names[::-1]),
        RECORDS.append_column("colour", pa.array(["red"] * 4)),
        RECORDS.set_column(0, "host", RECORDS["host"].dictionary_encode()),
        RECORDS.set_column(2, "rec_no", RECORDS["rec_no"].cast(pa.int32())),
        RECORDS.set_column(
            3, "ts", pc.add(RECORDS["ts"].cast(pa.timestamp("ns", "UTC")), pa.scalar(7, pa.duration("ns")))
        ),
        RECORDS.set_column(17, "share", RECORDS["share"].cast(pa.int16())),
    ],
    ids=["ours", "no share", "another order", "one more", "dictionary", "narrow", "nanoseconds", "signed"],
)
def test_columns_are_found_by_name(other: pa.Table) -> None:
    assert schema.conform(other).equals(RECORDS)
    wanted = pa.schema([schema.OBS.field(name) for name in ("share", "ts")])
    read = other.select(schema.columns_to_read(other.column_names, wanted))
    assert schema.conform(read, wanted).equals(RECORDS.select(["share", "ts"]))


def test_columns_that_may_be_missing_are_null() -> None:
    conformed = schema.conform(RECORDS.drop_columns(["payload", "epoch"]))
    assert conformed.schema.equals(schema.OBS)
    assert conformed["payload"].null_count == conformed["epoch"].null_count == 4


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (RECORDS.drop_columns(["rec_no"]), "rec_no"),
        (RECORDS.drop_columns(["src", "share", "ts"]), "ts"),
        (RECORDS.set_column(3, "ts", pa.array(["noon"] * 4)), "ts"),
        (RECORDS.set_column(2, "rec_no", pa.array([1, 2, None, 4])), "rec_no"),
        (RECORDS.set_column(4, "segment", pa.array([[1]] * 4)), "segment"),
    ],
)
def test_what_cannot_be_a_journal_is_named(other: pa.Table, named: str) -> None:
    with pytest.raises(DamagedFileError, match=f"column {named}"):
        schema.conform(other)
