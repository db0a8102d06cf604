"""What a log says of its journal can be read again; what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import JournalError
from bccnd.recorder.sessions import Head, Session, pack_alive, read_alive, read_head

TIMES = st.integers(0, 2**60)
EXTREME = [
    b"[" * 100_000,
    b'{"form": 1, "host": "", "journal": "", "first": 1e999, "version": "", "stretches": [], "causes": []}',
]
CAUSES = st.sampled_from(["", "start", "suspend"])
STRETCHES = st.lists(st.builds(Session, TIMES, TIMES, st.integers(0, 2**40), st.integers(0, 2**40), CAUSES), max_size=3)


@given(st.builds(Head, st.text(max_size=9), st.text(max_size=9), st.integers(1, 2**60), st.text(max_size=9), STRETCHES))
def test_a_beginning_can_be_read_again(head: Head) -> None:
    assert read_head(head.pack()) == head


@given(
    st.binary(max_size=30)
    | st.sampled_from([b"[]", b"{}", b'{"form": 2}', b"null", b'{"form": 1, "host": 1}', *EXTREME])
)
def test_what_is_no_beginning(data: bytes) -> None:
    with pytest.raises(JournalError):
        read_head(data)


def test_signs_of_life() -> None:
    assert read_alive(pack_alive(5, 7)) == (5, 7)
    with pytest.raises(ValueError, match="no record"):
        read_alive(b"x")
    stretch = Session(10, 10)
    stretch.extend(20, 3)
    stretch.extend(15, 2)
    assert stretch == Session(10, 20, 3)
