"""The compiled reader of messages and the plain one read the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.client.message import Message, _read_channel, _read_with_meta
from bccnd.native.buffers.bus_messages import MessageReader

#: what a frame is made of, so that most are nearly right
PARTS = st.lists(
    st.sampled_from(
        [b"MSG ", b"a/b", b"!x", b"two words", b"\0", b":", b"|", b"7", b"9" * 20, b"1" * 21, b"\xff", b"x"]
    ),
    max_size=14,
).map(b"".join)
WELL_FORMED = st.tuples(st.sampled_from([b"a", b"!", b"!/x", b"b c", b"a" * 1100]), PARTS).map(
    lambda parts: b"MSG %b\0relay/x/1:5:6:local|%b" % parts
)


@given(st.lists(PARTS.map(lambda rest: b"MSG " + rest) | PARTS | WELL_FORMED, max_size=5))
def test_what_is_read_is_the_same_with_and_without_the_library(frames: list[bytes]) -> None:
    read = MessageReader(Message, _read_channel).read
    assert [read(frame) for frame in frames] == [_read_with_meta(frame) for frame in frames]


def test_more_channels_than_are_kept_are_read() -> None:
    read = MessageReader(Message, _read_channel).read
    for number in [*range(1500), *range(10)]:
        message = read(b"MSG c%d\0s/p/1:2:3:local|x" % number)
        assert message is not None
        assert (message.chan, message.src, message.seq, message.payload) == (f"c{number}", "s/p/1", 2, b"x")
