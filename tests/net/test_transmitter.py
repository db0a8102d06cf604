"""A datagram goes out on all segments, copies follow, and an error on one segment stops nothing."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.sending.redundancy import Repeater, RepeatRule, RepeatRules
from bccnd.core.wire.frames import message
from bccnd.native.system.sockio import BroadcastSender
from bccnd.net.loop import Loop
from bccnd.net.segment_sender import SegmentSender
from bccnd.net.transmitter import Transmitter
from tests.rules import dedup_rules
from tests.support import turn_until


class Recorder(BroadcastSender):  # type: ignore[misc]
    """Keeps what it is to send, and fails with an errno."""

    def __init__(self, name: str, sent: list[tuple[str, bytes]], failure: int) -> None:
        super().__init__(-1, b"")
        self._name = name
        self._sent = sent
        self._failure = failure

    def broadcast(self, datagram: bytes) -> int:
        self._sent.append((self._name, datagram))
        return self._failure


def segment(name: str, sent: list[tuple[str, bytes]], failure: int = 0) -> SegmentSender:
    return SegmentSender(SegmentCounters(name), Recorder(name, sent, failure))


def made(rules: Sequence[RepeatRule], horizon: float = 2.0) -> Repeater:
    return Repeater(RepeatRules(rules, DIALECTS["path"]), dedup_rules(horizon=horizon))


def test_copies_go_out_on_all_segments_when_they_are_due(loop: Loop) -> None:
    sent: list[tuple[str, bytes]] = []
    repeater = made([RepeatRule(b"often", 3, 0.005), RepeatRule(b"late", 2, 1.0)])
    transmitter = Transmitter(loop, [segment("a", sent), segment("b", sent)], repeater)
    assert [transmitter.broadcast(message(chan, b""), chan) for chan in (b"once", b"often", b"late")] == [None] * 3
    loop.later(0.1, loop.stop)
    loop.run()
    assert [datagram for name, datagram in sent if name == "a"] == [b"once", b"often", b"late", b"often", b"often"]
    transmitter.send_remaining_copies()
    assert sent[-2:] == [("a", b"late"), ("b", b"late")]
    assert repeater.next_due is None


def test_copies_of_a_rule_do_not_wait_for_those_of_a_slower_one(loop: Loop) -> None:
    sent: list[tuple[str, bytes]] = []
    rules = [RepeatRule(b"slow", 2, 3600.0), RepeatRule(b"fast", 3, 0.002)]
    repeater = made(rules, horizon=7200.0)
    transmitter = Transmitter(loop, [segment("a", sent)], repeater)
    timers = len(loop._timers)
    transmitter.broadcast(message(b"slow", b""), b"slow")
    for _ in range(20):
        before = len(sent)
        transmitter.broadcast(message(b"fast", b""), b"fast")
        turn_until(loop, lambda before=before: len(sent) >= before + 3, "the copies")  # type: ignore[misc]
        transmitter.broadcast(message(b"slow", b""), b"slow")
    assert sum(datagram == b"slow" for _, datagram in sent) == 21
    # One for the slow copies; what has sent the fast ones is gone.
    assert len(loop._timers) <= timers + 2


def test_an_error_on_one_segment_is_returned_and_the_others_are_served(loop: Loop) -> None:
    sent: list[tuple[str, bytes]] = []
    segments = [segment("a", sent, errno.ENETDOWN), segment("b", sent)]
    assert Transmitter(loop, segments, made([])).broadcast(message(b"x", b""), b"x") == "ENETDOWN"
    assert sent == [("a", b"x"), ("b", b"x")]
