"""Datagrams that are built of frames in one piece are those that are built of their parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.wire import bccn1, frames
from bccnd.native.buffers.datagram import build, find_nul
from bccnd.native.buffers.hmac8 import Hmac8
from tests.core.material import KEY, examples, sign

SEQS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 9, 10, 99, 10**15, 2**64 - 1]))


@given(st.binary(max_size=130), SEQS, st.binary(max_size=20), st.binary(max_size=1500), st.booleans())
@examples(500)
def test_a_datagram_is_that_of_its_parts(src: bytes, seq: int, chan: bytes, payload: bytes, signed: bool) -> None:
    chan = chan.replace(b"\0", b"0")
    frame = frames.message(chan, payload)
    body = bccn1.build_body(src, seq, chan, payload)
    expected = bccn1.build(body, sign(KEY, body)) if signed else bccn1.build(body)
    assert build(src, seq, frame, Hmac8(KEY) if signed else None) == expected
    assert find_nul(frame) == frames.KEY + len(chan)


@pytest.mark.parametrize("frame", [b"", b"MSG", b"MSG a", b"\0", b"MSG\0", b"x\0MSG a\0"])
def test_what_is_no_frame_of_a_message_is_refused(frame: bytes) -> None:
    with pytest.raises(ValueError, match="no frame"):
        build(b"a/b/1", 1, frame)
    assert find_nul(frame) == frame.find(0)
