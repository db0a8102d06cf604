"""Rows are what the tap tells of, in the log as on the bus."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.tap_record import SEQ_OFFSET, Observation, observe
from bccnd.core.wire import frames
from bccnd.recorder import rows
from tests.recorder.material import NOON, packet, tapped

DATAGRAMS = st.binary(max_size=40) | st.integers(0, 2**64 - 1).map(
    lambda seq: b"BCCN1[%d]a/b:%d:!x|p" % (len(b"a/b:%d:!x|p" % seq), seq)
)
PEERS = st.sampled_from(["10.0.0.1:5400", "[fe80::1%eth0]:5400", "local"])


@given(st.lists(st.tuples(DATAGRAMS, PEERS), min_size=1, max_size=5), st.text("ab c#-/é", max_size=9))
def test_every_datagram_of_the_tap_is_a_row(datagrams: list[tuple[bytes, str]], segment: str) -> None:
    reported = [frames.tapped("stale", segment, 7, 5000, peer, raw) for raw, peer in datagrams]
    expected = [observe("stale", segment, 7, 5000, peer, raw) for raw, peer in datagrams]
    assert rows.observations(frames.batch(reported)) == expected
    assert [row for packet in reported for row in rows.observations(packet)] == expected
    assert len(rows.tapped(frames.batch(reported))) == len(datagrams)


def test_only_datagrams_of_the_tap_are_rows() -> None:
    mixed = frames.batch([b"MSG !\0for all", tapped(1, NOON), b"MSG !/tap/accepted\0garbage", tapped(2, NOON)])
    assert [row.seq_key for row in rows.observations(mixed)] == [1 - SEQ_OFFSET, 2 - SEQ_OFFSET]
    assert len(rows.tapped(mixed)) == 2
    assert rows.observations(frames.gap(3)) == rows.observations(b"MSGS 2\0cut short") == []
    assert (rows.gap_in(frames.gap(17)), rows.gap_in(frames.gap(0))) == (17, 1)
    for raw in (packet([1], NOON), b"CMSG !/bccn/gap\0x", tapped(1, NOON, payload=frames.gap(3))):
        assert rows.gap_in(raw) == 0


ROWS = st.builds(
    Observation,
    st.integers(0, 2**60),
    st.text(max_size=9),
    st.text(max_size=9),
    st.integers(0, 65_535),
    st.text(max_size=9),
    *[st.none() | st.text(max_size=9)] * 3,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**31 - 1),
    *[st.none() | st.text(max_size=9)] * 2,
    st.integers(0, 70_000),
    st.none() | st.binary(max_size=9),
)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_rows_can_be_written_and_read(observed: list[Observation]) -> None:
    assert rows.unpack(rows.pack(observed)) == observed


@pytest.mark.parametrize("data", [b"", b"1", b"[1]", b"[[]]", b"[[1, 2]]", b'{"a": 1}', b"\xff", b"none"])
def test_bytes_that_are_no_rows(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".|^$"):
        rows.unpack(data)
