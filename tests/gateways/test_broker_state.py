"""The file that keeps subscriptions: whole or not there, and never what stops a start."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.gateways.broker_sessions import Record
from bccnd.gateways.broker_state import dump, parse, place, read, set_aside, write

records = st.builds(
    Record,
    st.binary(min_size=1, max_size=11),
    st.floats(0, 4e9).map(lambda seen: round(seen, 3)),
    st.lists(st.binary(min_size=1, max_size=50), max_size=4).map(tuple),
)


@given(st.lists(records, max_size=6))
def test_records_come_back_as_they_were(kept: list[Record]) -> None:
    assert parse(dump(kept)) == kept


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff\xfe"),
        *(b'{"format": "another", "ids": []}', b'{"format": "bccnd-broker-1"}'),
        *(
            b'{"format": "bccnd-broker-1", "ids": [%b]}' % one
            for one in (
                *(b'{"id": "C1"}', b'{"id": "\\u20ac", "seen": 1, "topics": []}'),
                b'{"id": "C1", "seen": "x", "topics": []}',
            )
        ),
    ],
)
def test_what_is_no_such_file_is_refused_with_one_kind_of_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse(text)


@given(st.integers(0, 200))
def test_a_file_that_was_cut_is_refused_or_whole(size: int) -> None:
    text = dump([Record(b"C1", 1.0, (b"a/b",)), Record(b"C2", 2.0, (b"c",))])
    cut = text[: max(0, len(text) - 1 - size)]
    if len(cut) == len(text) - 1:  # without the end of the line
        assert parse(cut) == parse(text)
    else:
        with pytest.raises(ValueError):
            parse(cut)


def test_a_file_is_written_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    path = str(tmp_path / "below" / "state.json")
    assert read(path) == []
    for kept in ([Record(b"C1", 1.0, (b"a",))], [Record(b"C2", 2.0, (b"b",))]):
        write(path, dump(kept))
        assert read(path) == kept
    assert os.listdir(tmp_path / "below") == ["state.json"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    os.mkdir(f"{path}.new")  # what it would write to
    with pytest.raises(OSError):
        write(path, dump([]))
    assert read(path) == kept
    aside = set_aside(path)
    assert read(path) == []
    assert read(aside) == kept


def test_brokers_at_different_addresses_have_different_files(tmp_path: Path) -> None:
    environment = {"STATE_DIRECTORY": f"{tmp_path}:/another"}
    assert place(("127.0.0.1", 5401), environment) == f"{tmp_path}/broker-127.0.0.1-5401.json"
    places = {place(tcp, environment) for tcp in [("127.0.0.1", 1), ("127.0.0.1", 2), ("::1", 1), ("0.0.0.0", 1)]}
    assert len(places) == 4
    assert all(os.path.dirname(one) == str(tmp_path) for one in places)
