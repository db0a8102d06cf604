"""Lines from standard input, and complaints about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.cli.lines import Complaints, Lines
from bccnd.client.bus import Refusal
from bccnd.core.frames import MAX_PACKET
from tests.refusals import refused


@given(st.lists(st.binary(min_size=1).map(lambda data: data.replace(b"\r", b"\n"))))
def test_lines_are_the_same_however_they_come_in_pieces(pieces: list[bytes]) -> None:
    lines = Lines()
    found = [line for piece in [*pieces, b""] for line in lines.feed(piece)]
    whole = b"".join(pieces).split(b"\n")
    assert found == (whole if whole[-1] else whole[:-1])


def test_a_line_is_there_as_soon_as_it_ends() -> None:
    lines = Lines()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"o") == []
    assert lines.feed(b"\n\n") == [b"two", b""]
    assert lines.feed(b"") == []
    assert lines.feed(b"last") == []
    assert lines.feed(b"") == [b"last"]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    lines = Lines()
    assert lines.feed(b"x" * MAX_PACKET) == []
    with refused("too_long"):
        lines.feed(b"x")


def test_complaints_are_told_at_once_and_then_now_and_then_with_a_count() -> None:
    said: list[str] = []
    now = [0.0]
    complaints = Complaints(said.append, lambda: now[0])
    assert complaints.due() is None
    for _ in range(1000):
        complaints.add(Refusal("too_long", "a"))
    assert len(said) == 1
    assert said[0].startswith("'a'")
    assert not said[0].endswith(" messages)")
    complaints.add(Refusal("send_failed", "a"))
    assert (len(said), complaints.due()) == (2, 5)
    for moment, due, count in ((4.9, pytest.approx(0.1), 2), (5.0, 0, 3)):
        now[0] = moment
        assert complaints.due() == due
        complaints.look()
        assert len(said) == count
    assert "999 more" in said[2]
    assert complaints.due() is None
    complaints.add(Refusal("too_long", "a"))
    assert len(said) == 3
    complaints.end()
    assert "1 more" in said[3]
    complaints.end()
    assert (len(said), complaints.total) == (4, 1002)
