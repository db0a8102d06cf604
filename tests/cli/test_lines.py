"""Lines from standard input, and complaints about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.cli.lines import Complaints, Lines
from bccnd.client.bus import Refusal
from bccnd.core.frames import MAX_PACKET
from bccnd.errors import BusError


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
    with pytest.raises(BusError) as caught:
        lines.feed(b"x")
    assert caught.value.reason == "too_long"


def test_complaints_are_told_at_once_and_then_now_and_then_with_a_count() -> None:
    said: list[str] = []
    now = [0.0]
    complaints = Complaints(said.append, lambda: now[0])
    assert complaints.due() is None
    for _ in range(1000):
        complaints.add(Refusal("too_long", "a"))
    assert len(said) == 1
    assert said[0].startswith("'a' does not fit")
    assert not said[0].endswith(" messages)")
    complaints.add(Refusal("send_failed", "a"))
    assert len(said) == 2
    assert complaints.due() == 5
    now[0] = 4.9
    complaints.look()
    assert len(said) == 2
    now[0] = 5.0
    assert complaints.due() == 0
    complaints.look()
    assert len(said) == 3
    assert said[2].endswith(" (999 more messages)")
    assert complaints.due() is None
    complaints.add(Refusal("too_long", "a"))
    assert len(said) == 3
    complaints.end()
    assert said[3].endswith(" (1 more messages)")
    complaints.end()
    assert len(said) == 4
    assert complaints.total == 1002
