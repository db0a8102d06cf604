"""What a log says of its journal can be read again; what is none is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import JournalError
from bccnd.journal.sessions import RecorderSession
from bccnd.recorder.sessions import Head, pack_alive, read_alive, read_head, without_removed

TIMES = st.integers(0, 2**60)
EXTREME = [
    b"[" * 100_000,
    b'{"form": 2, "host": "", "journal": "", "first": 1e999, "version": "", "sessions": []}',
    b'{"form": 1, "host": "", "journal": "", "first": 1, "version": "", "sessions": []}',
]
CAUSES = st.sampled_from(["", "start", "suspend"])
COUNTS = st.integers(0, 2**40)
STRETCHES = st.lists(st.builds(RecorderSession, TIMES, TIMES, COUNTS, COUNTS, COUNTS, COUNTS, CAUSES), max_size=3)


@given(st.builds(Head, st.text(max_size=9), st.text(max_size=9), st.integers(1, 2**60), st.text(max_size=9), STRETCHES))
def test_a_beginning_can_be_read_again(head: Head) -> None:
    assert read_head(head.pack()) == head


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([], [(1, 10, 0), (11, 20, 100), (21, 30, 50)]),
        ([(1, 10, 0), (11, 15, 100)], [(1, 10, 0), (11, 20, 100), (21, 30, 50)]),
        ([(6, 10, 8), (11, 15, 100)], [(6, 10, 8), (11, 20, 100), (21, 30, 50)]),
        ([(14, 15, 104)], [(14, 20, 104), (21, 30, 50)]),
        # all of it is gone, and the next record is in the session that began as the clock was set back
        ([(21, 20, 109)], [(21, 20, 109), (21, 30, 50)]),
    ],
)
def test_what_retention_has_removed_stays_removed(written: list[tuple[int, ...]], expected: list[object]) -> None:
    def sessions(*found: tuple[int, ...]) -> list[RecorderSession]:
        return [RecorderSession(start, start + 9, first=first, last=last) for first, last, start in found]

    left = without_removed(sessions((1, 10, 0), (11, 20, 100), (21, 30, 50)), sessions(*written))
    assert [(session.first, session.last, session.start) for session in left] == expected


@given(
    st.binary(max_size=30)
    | st.sampled_from([b"[]", b"{}", b'{"form": 2}', b"null", b'{"form": 2, "host": 1}', *EXTREME])
)
def test_what_is_no_beginning(data: bytes) -> None:
    with pytest.raises(JournalError):
        read_head(data)


def test_signs_of_life() -> None:
    assert read_alive(pack_alive(5, 7)) == (5, 7)
    with pytest.raises(ValueError, match="no record"):
        read_alive(b"x")
    stretch = RecorderSession(10, 10)
    stretch.extend(20, 3)
    stretch.extend(15, 2)
    assert stretch == RecorderSession(10, 20, 3)
