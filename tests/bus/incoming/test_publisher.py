"""A datagram goes out on all segments, copies follow, and an error on one segment stops nothing."""

from __future__ import annotations

from bccnd.bus.incoming.publisher import Publisher
from bccnd.core.sending.redundancy import Repeater, RepeatRule, RepeatRules
from bccnd.core.wire import frames
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
    assert [publish(publisher, chan) for chan in (b"once", b"often", b"late")] == [""] * 3
    turn_until(hub.loop, lambda: len(segments[0].datagrams) == 5, "the copies")
    publisher.send_remaining_copies()
    assert channels(segments[0]) == [b"once", b"often", b"late", b"often", b"often", b"late"]
    assert segments[0].datagrams == segments[1].datagrams
    assert len(set(segments[0].datagrams)) == 3


def test_copies_of_a_rule_do_not_wait_for_those_of_a_slower_one(hub: Hub) -> None:
    segment = FakeSegment()
    publisher = publisher_of(hub, [segment], RepeatRule(b"slow", 2, 3600.0), RepeatRule(b"fast", 3, 0.002))
    timers = len(hub.loop._timers)
    publish(publisher, b"slow")
    for _ in range(20):
        before = len(segment.datagrams)
        publish(publisher, b"fast")
        turn_until(hub.loop, lambda before=before: len(segment.datagrams) >= before + 3, "the copies")  # type: ignore[misc]
        publish(publisher, b"slow")
    assert channels(segment).count(b"slow") == 21
    # One for the slow copies; those that have sent the fast ones are gone.
    assert len(hub.loop._timers) <= timers + 2


def test_an_error_on_one_segment_is_returned_and_the_others_are_served(hub: Hub) -> None:
    segments = [FakeSegment(), FakeSegment()]
    segments[0].answer = "ENETDOWN"
    assert publish(publisher_of(hub, segments), b"x") == "send_failed"
    assert [channels(segment) for segment in segments] == [[b"x"], [b"x"]]
