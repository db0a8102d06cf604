"""Which messages an endpoint recognizes as repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.client.message import Message
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire.verdicts import LAST_ACCEPTED
from bccnd.endpoint.receive_queues import ChannelQueues, RememberedMessages

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


def test_sources_are_capped_the_longest_silent_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.endpoint.receive_queues.MAX_REMEMBERED", 3)
    remembered = RememberedMessages(1024, 2.0)
    for source in (b"a", b"b", b"c", b"d"):
        assert not remembered.is_repeated(source, 1, b"", 0.0, 0.0)
    assert [remembered.is_repeated(source, 1, b"", 0.0, 0.0) for source in (b"d", b"c", b"b", b"a")] == [True] * 3 + [
        False
    ]


def test_what_is_remembered_is_capped_and_cleared_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.endpoint.receive_queues.MAX_REMEMBERED", 3)
    remembered = RememberedMessages(1024, 2.0)
    for seq, repeated in ((1, False), (2, False), (3, False), (4, False), (2, True), (3, True), (4, True), (1, False)):
        assert remembered.is_repeated(b"a", seq, b"", 0.0, 10.0 + seq) is repeated
    remembered.forget(13.5)
    assert remembered.stats() == {"DDC": 2, "DDO": 14.0}


def queued(queues: ChannelQueues, *chans: str) -> None:
    """Let messages come, a second after each other, each with its channel and number as its payload."""
    for chan in chans:
        number = queues.stats(0.0)["TQMC"]["*"]
        message = Message("b", number, chan, b"%b%d" % (chan.encode(), number), "plain", "local", number * 10**9)
        queues.count(message)
        queues.put(message)


def taken(queues: ChannelQueues) -> list[bytes]:
    found = []
    while queues.waiting:
        found.append(queues.take_oldest().payload)
    return found


def test_channels_are_capped_the_longest_silent_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.endpoint.receive_queues.MAX_CHANNELS", 3)
    queues = ChannelQueues(0)
    queued(queues, "k", "x", "k", "y", "z", "k")
    stats = queues.stats(0.0)
    assert (stats["SEEN_QS"], stats["QMC"], stats["DROPPED"]) == (["y", "z", "k"], {"y": 1, "z": 1, "k": 3}, 1)
    assert taken(queues) == [b"k0", b"k2", b"y3", b"z4", b"k5"]


def test_what_waits_is_capped_until_something_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.endpoint.receive_queues.MAX_QUEUED", 3)
    queues = ChannelQueues(0)
    queued(queues, "x", "y", "x", "y", "x")
    assert (queues.stats(0.0)["QMC"], queues.stats(0.0)["DROPPED"]) == ({"x": 2, "y": 1}, 2)
    assert queues.take("x").payload == b"x0"
    queued(queues, "y")
    assert taken(queues) == [b"y1", b"x2", b"y5"]


def test_speeds_are_over_the_last_messages_and_fall_in_silence() -> None:
    queues = ChannelQueues(3)
    queued(queues, *"xxxxxy*")
    # Three of the five messages on x count; a channel that is called like the sum does not stand in its place.
    assert queues.stats(7.0)["SS"] == {"x": 3 / 5, "y": 1 / 2, "*": 3 / 3}
    assert queues.stats(12.0)["SS"] == {"x": 3 / 10, "y": 1 / 7, "*": 3 / 8}
    assert queues.stats(12.0)["TQMC"]["*"] == 7
