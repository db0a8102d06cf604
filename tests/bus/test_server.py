"""The local bus with real clients: deliveries, refusals and isolation."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.bus.clients.registry import PORTION
from bccnd.bus.requests.client_requests import PAGE
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.observing.counters import ERROR_REASONS
from bccnd.core.trust.integrity import make_checker
from bccnd.core.trust.signatures import generate, public_of
from bccnd.core.wire import frames
from bccnd.core.wire.frames import MAX_PACKET
from tests.bus.packets import page
from tests.rules import bus_limits
from tests.support import Hub, Peer, dropped, gaps, messages, own_identity, refusals, slow, turn_until


def test_a_user_holds_no_more_patterns_than_their_memory_is_charged_for(tmp_path: Path) -> None:
    with Hub(tmp_path, limits=bus_limits(user={"subscriptions": 20})) as hub:
        one, other = hub.connect(), hub.connect()
        deep = [b"%d/" % number + b"a/" * 62 for number in range(6)]
        for pattern in deep:
            one.send(b"SUB " + pattern)
        refused = [pattern for _, pattern in refusals(one.all())]
        assert refused
        assert refused == deep[-len(refused) :]
        other.send(b"SUB a")
        assert refusals(other.all()) == [(b"too_many_subscriptions", b"a")]
        one.close()
        turn_until(hub.loop, lambda: len(hub.bus.clients) == 1)
        other.send(b"SUB a")
        assert refusals(other.all()) == []


def test_what_a_client_held_goes_in_portions_when_it_leaves(hub: Hub) -> None:
    one, other = hub.connect(), hub.connect()
    patterns = [b"%d/*" % number for number in range(3 * PORTION)]
    for pattern in patterns:
        one.send(b"SUB " + pattern)
    one.all()
    fd = one.client.fd
    before = hub.routes.bytes_of(os.getuid())
    one.close()
    turn_until(hub.loop, lambda: one.client.open is False, "its end")
    other.publish(b"1/x", b"x")
    turn_until(hub.loop, lambda: not hub.routes.bytes_of(os.getuid()), "the end of its patterns")
    assert before > 0
    late = hub.connect(b"new")
    other.publish(b"2/x", b"x")
    other.publish(b"new", b"x")
    assert [one for one in late.all() if one.startswith(b"MSG")] == [b"MSG new\0x"]
    assert late.client.fd == fd


def test_wildcards_at_too_many_places_of_a_user_are_refused(tmp_path: Path) -> None:
    with Hub(tmp_path, limits=bus_limits(user={"wildcards": 3})) as hub:
        one, other = hub.connect(b"*/a", b"*/b"), hub.connect()
        other.send(b"SUB */a/c", b"SUB a/*", b"SUB a/b/", b"SUB */d")
        assert refusals(other.all()) == [(b"too_many_wildcards", b"a/*")]
        one.publish(b"x/a/c", b"1")
        one.publish(b"a/b/c", b"2")
        assert other.all() == [b"MSG x/a/c\x001", b"MSG a/b/c\x002"]
        other.send(b"UNSUB */a/c", b"SUB a/*")
        assert refusals(other.all()) == []


def test_segment_and_meta_clients_get_sender_and_rising_seqs(hub: Hub) -> None:
    one, publisher = hub.connect(b"a"), hub.connect()
    one.send(b"CMSG !/bccn/meta/on")
    one.all()
    publisher.publish(b"a", b"x:1|y", b"2")
    metas = [frames.read_meta(payload) for payload in messages(one.all(), b"a")]
    assert [(src, peer, rest) for src, _, _, peer, rest in metas] == [
        (own_identity(), "local", b"x:1|y"),
        (own_identity(), "local", b"2"),
    ]
    assert 0 < metas[0][2] <= metas[1][2]
    heads = [datagram.partition(b"]")[2] for datagram in hub.sent]
    assert heads == [b"%b:%d:a|%b" % (src, seq, rest) for src, seq, _, _, rest in metas]
    assert metas[1][1] == metas[0][1] + 1
    assert hub.routes.carried() == [(b"a", 2, 1)]


#: beside those that are in test_model.py
REFUSED = [
    (b" SUB a", b"unknown_verb", b" SUB a"),
    (b"PUB a\0x", b"unknown_verb", b"PUB a\0x"),
    (b"UNSUB ", b"not_subscribed", b""),
    (b"SUB !/cred/0/0/1/x", b"not_permitted", b"!/cred/0/0/1/x"),
    (b"SUB " + b"x" * 1025, b"pattern_too_long", b"x" * 64),
    (b"SUB " + b"/".join([b"x"] * 65), b"pattern_too_long", b"x/" * 32),
    (b"CMSG !/bccn/stats\0" + b"x" * 100, b"unknown_listing", b"x" * 64),
    (b"MSG !/bccn/error\0x", b"reserved_key", b"!/bccn/error"),
    (b"MSG !/cred/0/0/1\0x", b"reserved_key", b"!/cred/0/0/1"),
    (b"MSG !?x/y\0x", b"bad_target", b"!?x/y"),
    (b"MSG a\0" + b"x" * (MAX_PACKET - 5), b"frame_too_long", b"MSG a\0" + b"x" * 58),
    (b"MSG " + b"k" * 300_000 + b"\0", b"bad_channel", b"k" * 1024),
    (b"CMSG " + b"k" * 300_000, b"unknown_control", b"k" * 1024),
    (b"UNSUB " + b"k" * 300_000, b"not_subscribed", b"k" * 1024),
]


@pytest.mark.parametrize(("packet", "reason", "key"), REFUSED)
def test_refusals_have_reason_and_key_and_the_client_stays(hub: Hub, packet: bytes, reason: bytes, key: bytes) -> None:
    one, other = hub.connect(b"a"), hub.connect(b"", b"!")
    one.send(packet)
    assert one.all() == [b"CMSG !/bccn/error\0%b %b" % (reason, key)]
    assert hub.bus.counters.errors.all() == {reason.decode(): 1}
    assert reason.decode() in ERROR_REASONS
    assert hub.sent == []
    assert other.all() == ([packet] if reason == b"bad_channel" else [])
    one.publish(b"a", b"still here")
    assert one.all() == [b"MSG a\0still here"]


def test_largest_packet_reaches_a_client_with_a_small_buffer(hub: Hub) -> None:
    one, publisher = hub.connect(b"a"), hub.connect()
    one.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    payloads = [b"1", b"x" * (MAX_PACKET - 6), b"2", b"y" * (MAX_PACKET - 6), b"3"]
    publisher.publish(b"a", *payloads)
    assert refusals(publisher.all()) == [(b"too_long", b"a")] * 2
    assert messages(one.all(), b"a") == payloads
    assert dropped(hub) == {}


def listing(peer: Peer, topic: bytes) -> Iterator[list[dict[str, Any]]]:
    """The pages of a listing."""
    while True:
        found = page(peer, topic)
        yield found["items"]
        if not found["more"]:
            return
        topic = b"more"


def test_listing_is_paged_and_complete(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    with Hub(tmp_path, listings={b"rows": lambda: iter(rows), b"daemon": lambda: [{"version": "1"}]}) as hub:
        one, other = hub.connect(), hub.connect()
        one.send(b"CMSG !/bccn/stats")
        assert one.all() == [b'CMSG !/bccn/stats\0{"items":[{"version":"1"}],"more":false}']
        assert list(listing(one, b"more")) == [[]]
        for count in (0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE):
            rows[:] = [{"number": number} for number in range(count)]
            pages = list(listing(one, b"rows"))
            assert all(len(page) <= PAGE for page in pages)
            assert [row for page in pages for row in page] == rows
        both = listing(one, b"rows"), listing(other, b"rows")
        assert [len(next(each)) for each in both * 2] == [PAGE] * 4


def test_patterns_that_are_no_text_can_be_listed_and_no_listing_is_too_large_for_a_packet(hub: Hub) -> None:
    # 128 characters are shown of each of 8 patterns, and JSON writes each of these with 12 letters.
    patterns = [b"%d\xff" % number + "\U0001f600".encode() * 200 for number in range(8)]
    for _ in range(PAGE):
        hub.connect(*patterns)
    asker = hub.connect()
    rows = [row for page in listing(asker, b"clients") for row in page]
    assert len(rows) == PAGE + 1
    assert all(rows[0]["patterns"][number].startswith(f"{number}\\xff") for number in range(8))


def test_the_queue_of_a_client_that_asks_without_reading_is_bounded(small: Hub) -> None:
    one = slow(small)
    for _ in range(2000):
        one.send(b"CMSG !/bccn/whoami", b"nonsense", b"CMSG !/bccn/sync\0" + b"x" * 1000)
    small.turn()
    assert len(one.client.queue) <= 2 * 20
    assert one.client.queue.bytes <= 100_000
    assert one.client.lost == 0
    # When it reads at last, it is served again.
    one.publish(b"a", b"x")
    one.waiting()
    small.turn()
    assert one.client.open


def test_answers_do_not_take_the_place_of_messages(small: Hub) -> None:
    one, publisher = slow(small, b"a"), small.connect()
    publisher.publish(b"a", *[b"x" * 1000] * 5)
    publisher.all()
    one.send(*[b"CMSG !/bccn/whoami"] * 30)
    small.turn()
    publisher.publish(b"a", *[b"y" * 100] * 5)
    publisher.all()
    packets = one.all()
    assert len(messages(packets, b"a")) == 10
    assert gaps(packets) == 0


def test_slow_clients_are_named_in_the_log_once(small: Hub, caplog: pytest.LogCaptureFixture) -> None:
    slow(small, b"a/", b"b")
    publisher = small.connect()
    for _ in range(100):
        publisher.publish(b"a/b", b"x" * 1000)
    publisher.all()
    (line,) = [message for message in caplog.messages if f"pid {os.getpid()}, uid {os.geteuid()}" in message]
    assert "'a/', 'b'" in line


DAEMON = b"relay01/bccnd/1"
BEAT = b"heartbeat/" + DAEMON


def publish(hub: Hub, key: bytes, payload: bytes = b"") -> str:
    """As the daemon publishes its own heartbeats."""
    return hub.bus.publish(DAEMON, key, payload)


def test_the_daemon_publishes_under_an_identity_of_its_own_like_any_client(hub: Hub) -> None:
    hub.builder.open(DAEMON)
    one, curious, other = hub.connect(b"heartbeat/"), hub.connect(b""), hub.connect(b"a")
    curious.send(frames.request(frames.META_ON))
    curious.all()
    assert [publish(hub, BEAT), publish(hub, BEAT, b"busy")] == ["", ""]
    assert one.all() == [frames.message(BEAT, b""), frames.message(BEAT, b"busy")]
    assert other.all() == []
    metas = [frames.read_meta(payload) for payload in messages(curious.all(), BEAT)]
    assert [(src, peer, payload) for src, _, _, peer, payload in metas] == [
        (DAEMON, "local", b""),
        (DAEMON, "local", b"busy"),
    ]
    heads = [datagram.partition(b"]")[2] for datagram in hub.sent]
    assert heads == [b"%b:%d:%b|%b" % (DAEMON, seq, BEAT, payload) for _, seq, _, _, payload in metas]
    assert metas[1][1] == metas[0][1] + 1
    assert (hub.bus.counters.published, hub.bus.counters.deliveries, hub.bus.counters.errors.all()) == (0, 4, {})


@pytest.mark.parametrize(
    ("key", "payload", "reason"),
    [
        (b"two words", b"x", "bad_channel"),
        (b"!?", b"", "bad_target"),
        (b"a", b"x" * 1400, "too_long"),
        (b"a", b"x" * 100_000, "too_long"),
        (b"a", b"x", "send_failed"),
        (b"a", b"x", "no_signing_key"),
    ],
)
@pytest.mark.parametrize("by_daemon", [False, True])
def test_unsendable_message_is_delivered_locally_and_refused(
    hub: Hub, key: bytes, payload: bytes, reason: str, by_daemon: bool
) -> None:
    hub.builder.open(DAEMON)
    if reason == "send_failed":
        hub.segment.answer = "ENETUNREACH"
    if reason == "no_signing_key":
        hub.builder.checker = make_checker("sig", [], {b"": [public_of(generate())]})
    one, publisher = hub.connect(b""), hub.connect()
    if by_daemon:
        assert publish(hub, key, payload) == reason
    else:
        publisher.publish(key, payload)
        assert publisher.all() == [frames.error(reason, key)]
    # A target that cannot be names no client, here as elsewhere.
    assert messages(one.all(), key) == ([] if reason == "bad_target" else [payload])
    assert len(hub.sent) == (reason == "send_failed")


LIVENESS = frames.LIVENESS + b"relay02/cardsys.lan/7"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_announcement_reaches_its_subscribers_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    with Hub(tmp_path, dialect=dialect) as hub:
        asked = [hub.connect(pattern) for pattern in (LIVENESS, b"!/bccn/liveness/relay02/*/7", b"!/", b"!/bccn/>")]
        not_asked = hub.connect(b"", b"!/bccn/liveness", b"!/bccn/liveness/relay01/", b"bccn/", b"*")
        # An announcement has no sender.
        for peer in asked:
            peer.send(frames.request(frames.META_ON))
            peer.all()
        hub.bus.announce(LIVENESS, b"silent")
        hub.bus.announce(LIVENESS, b"alive")
        for peer in asked:
            assert peer.all() == [frames.message(LIVENESS, b"silent"), frames.message(LIVENESS, b"alive")]
        assert not_asked.all() == hub.sent == []


def test_connected_clients_are_served_after_accepting_has_stopped(hub: Hub) -> None:
    one = hub.connect(b"a")
    hub.bus.acceptor.stop()
    with pytest.raises(ConnectionRefusedError):
        hub.knock()
    one.publish(b"a", b"x")
    assert one.all() == [b"MSG a\0x"]


def test_drain_does_not_wait_for_a_client_that_does_not_read(small: Hub) -> None:
    one, publisher = slow(small, b"a"), small.connect()
    publisher.publish(b"a", *[b"x" * 1000] * 10)
    publisher.all()
    before = time.monotonic()
    small.bus.finish(before + 0.05)
    assert one.client.queue
    assert time.monotonic() >= before + 0.05


def test_close_ends_every_client(tmp_path: Path) -> None:
    quiet: list[int] = []
    with Hub(tmp_path, on_quiet=lambda: quiet.append(1)) as hub:
        peers = [hub.connect(b"a") for _ in range(3)]
        hub.bus.close()
        assert all(peer.ended() for peer in peers)
        assert hub.bus.clients == {}
        assert len(hub.routes) == 0
    assert quiet == []
