"""Which messages an endpoint recognizes as repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire.verdicts import LAST_ACCEPTED
from bccnd.endpoint.received import RememberedMessages

#: seconds since the message before, and its seq
STREAM = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.5]), st.integers(1, 24)), max_size=40)


@given(STREAM)
def test_repetitions_and_restarts_are_those_of_the_daemon(stream: list[tuple[float, int]]) -> None:
    limits = TrackerLimits(sanity=8, late="deliver")
    remembered = RememberedMessages(limits.sanity, limits.horizon)
    tracker = TrackerTable(limits)
    now = 1000.0
    for seconds, seq in stream:
        now += seconds
        accepted = tracker.judge(b"a/b/1", seq, now) <= LAST_ACCEPTED
        assert remembered.is_repeated(b"a/b/1", seq, b"x", now, 0.0) is not accepted


def test_sources_are_capped_and_the_one_silent_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.endpoint.received.MAX_REMEMBERED", 3)
    remembered = RememberedMessages(1024, 2.0)
    for source in (b"a", b"b", b"c", b"d"):
        assert not remembered.is_repeated(source, 1, b"", 0.0, 0.0)
    assert [remembered.is_repeated(source, 1, b"", 0.0, 0.0) for source in (b"d", b"c", b"b", b"a")] == [True] * 3 + [
        False
    ]
