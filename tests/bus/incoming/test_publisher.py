"""A datagram goes out on all segments, copies follow, and an error on one segment stops nothing."""

from __future__ import annotations

from bccnd.bus.incoming.publisher import Publisher
from bccnd.core.sending.redundancy import Repeater, RepeatRule, RepeatRules
from bccnd.core.wire import frames
from tests.bus.leftovers import timers
from tests.rules import dedup_rules
from tests.support import FakeSegment, Hub, turn_until

DAEMON = b"relay01/bccnd/1"


def publisher_of(hub: Hub, segments: list[FakeSegment], *rules: RepeatRule) -> Publisher:
    hub.builder.open(DAEMON)
    repeater = Repeater(RepeatRules(rules, hub.dialect), dedup_rules(horizon=7200.0))
    return Publisher(hub.loop, hub.routes, hub.bus.fanout, hub.builder, segments, repeater)


def publish(publisher: Publisher, chan: bytes) -> str:
    packet = frames.message(chan, b"")
    refused: str = publisher.publish(DAEMON, packet, frames.KEY + len(chan), publisher.route(chan))
    return refused


def channels(segment: FakeSegment) -> list[bytes]:
    return [datagram.rpartition(b":")[2].removesuffix(b"|") for datagram in segment.datagrams]


def test_copies_go_out_on_all_segments_when_they_are_due(hub: Hub) -> None:
    segments = [FakeSegment(), FakeSegment()]
    publisher = publisher_of(hub, segments, RepeatRule(b"often", 3, 0.005), RepeatRule(b"late", 2, 1000.0))
    assert [publish(publisher, chan) for chan in (b"late", b"once", b"often")] == [""] * 3
    turn_until(hub.loop, lambda: len(segments[0].datagrams) == 5, "the copies")  # none waits for a later one
    publisher.send_remaining_copies()
    assert channels(segments[0]) == [b"late", b"once", b"often", b"often", b"often", b"late"]
    assert segments[0].datagrams == segments[1].datagrams
    assert len(set(segments[0].datagrams)) == 3


def test_fast_copies_leave_no_timers_beside_slow_ones(hub: Hub) -> None:
    segment = FakeSegment()
    publisher = publisher_of(hub, [segment], RepeatRule(b"slow", 2, 3600.0), RepeatRule(b"fast", 3, 0.002))
    before = timers()
    for number in range(20):
        publish(publisher, b"slow")
        publish(publisher, b"fast")
        due = 4 * number + 4
        turn_until(hub.loop, lambda due=due: len(segment.datagrams) == due, "the copies")  # type: ignore[misc]
    assert timers() - before <= 2  # one for the slow copies


def test_an_error_on_one_segment_is_returned_and_others_sent(hub: Hub) -> None:
    segments = [FakeSegment(), FakeSegment()]
    segments[0].answer = "ENETDOWN"
    assert publish(publisher_of(hub, segments), b"x") == "send_failed"
    assert [channels(segment) for segment in segments] == [[b"x"], [b"x"]]
