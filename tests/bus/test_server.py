"""The local bus with real clients: deliveries, refusals and isolation."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.bus.clients.client import Client
from bccnd.bus.requests.client_requests import PAGE
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.observing.counters import ERROR_REASONS
from bccnd.core.trust.integrity import make_checker
from bccnd.core.trust.signatures import generate, public_of
from bccnd.core.wire import frames
from bccnd.core.wire.frames import MAX_PACKET
from tests.bus.packets import page
from tests.support import Hub, Peer, messages, own_identity, slow, turn_until

DAEMON = b"relay01/bccnd/1"


@pytest.mark.parametrize("by_daemon", [False, True])
def test_messages_have_their_sender_and_rising_seqs(hub: Hub, by_daemon: bool) -> None:
    hub.builder.open(DAEMON)
    one, plain, other, publisher = hub.connect(b"a"), hub.connect(b"a"), hub.connect(b"b"), hub.connect()
    one.send(b"CMSG !/bccn/meta/on")
    one.all()
    payloads = [b"x:1|y", b"", b"2"]
    if by_daemon:
        assert [hub.bus.publish(DAEMON, b"a", payload) for payload in payloads] == [""] * 3
    else:
        publisher.publish(b"a", *payloads)
    src = DAEMON if by_daemon else own_identity()
    metas = [frames.read_meta(payload) for payload in messages(one.all(), b"a")]
    assert [(meta[0], *meta[3:]) for meta in metas] == [(src, "local", payload) for payload in payloads]
    assert [meta[1] - metas[0][1] for meta in metas] == [0, 1, 2]
    assert 0 < metas[0][2] <= metas[1][2] <= metas[2][2]
    heads = [datagram.partition(b"]")[2] for datagram in hub.sent]
    assert heads == [b"%b:%d:a|%b" % (src, seq, payload) for _, seq, _, _, payload in metas]
    assert (messages(plain.all(), b"a"), other.all()) == (payloads, [])
    assert hub.routes.carried() == [(b"a", 3, 2)]
    counters = hub.bus.counters
    assert (counters.published, counters.deliveries, counters.errors.all()) == (0 if by_daemon else 3, 6, {})


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


def test_a_page_with_the_longest_patterns_fits_into_a_packet(hub: Hub) -> None:
    # 128 characters are shown of each of 8 patterns, and JSON writes each of these with 12 letters.
    patterns = [b"%d\xff" % number + "\U0001f600".encode() * 200 for number in range(8)]
    for _ in range(PAGE):
        hub.connect(*patterns)
    asker = hub.connect()
    rows = [row for page in listing(asker, b"clients") for row in page]
    assert len(rows) == PAGE + 1
    assert all(rows[0]["patterns"][number].startswith(f"{number}\\xff") for number in range(8))


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
def test_unsendable_message_is_delivered_locally_and_refused(hub: Hub, key: bytes, payload: bytes, reason: str) -> None:
    hub.builder.open(DAEMON)
    if reason == "send_failed":
        hub.segment.answer = "ENETUNREACH"
    if reason == "no_signing_key":
        hub.builder.checker = make_checker("sig", [], {b"": [public_of(generate())]})
    one, publisher = hub.connect(b""), hub.connect()
    assert hub.bus.publish(DAEMON, key, payload) == reason
    publisher.publish(key, payload)
    assert publisher.all() == [frames.error(reason, key)]
    # A target that cannot be names no client, here as elsewhere.
    assert messages(one.all(), key) == ([] if reason == "bad_target" else [payload] * 2)
    assert len(hub.sent) == 2 * (reason == "send_failed")


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


def test_the_end_does_not_wait_for_a_client_that_does_not_read(hub: Hub) -> None:
    one, publisher = slow(hub, b"a"), hub.connect()
    publisher.publish(b"a", *[b"x" * 1000] * 10)
    publisher.all()
    before = time.monotonic()
    hub.bus.finish(before + 0.05)
    assert one.client.queue
    assert time.monotonic() >= before + 0.05


class Walked(dict[int, Client]):
    """Clients by descriptor, which nothing may iterate over."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError

    items = values = __iter__  # type: ignore[assignment]


def test_a_connect_compares_only_clients_of_its_process(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    identifier, pids = hub.bus.acceptor.identifier, itertools.count(1000)
    identify = identifier.identify
    monkeypatch.setattr(identifier, "identify", lambda sock: identify(sock)._replace(pid=next(pids), started=1))
    first = [hub.connect() for _ in range(3)]
    before = hub.bus.clients
    hub.bus.clients = hub.bus.registry.by_fd = Walked(before)
    hub.knock()
    turn_until(hub.loop, lambda: len(hub.bus.clients) == 4, "one more client")
    hub.bus.registry.end(first[0].client)
    assert len(hub.bus.registry.by_pid) == len(hub.bus.clients) == 3
    hub.bus.clients = hub.bus.registry.by_fd = dict(dict.items(hub.bus.clients))


def test_close_ends_every_client(tmp_path: Path) -> None:
    quiet: list[int] = []
    with Hub(tmp_path, on_quiet=lambda: quiet.append(1)) as hub:
        peers = [hub.connect(b"a") for _ in range(3)]
        hub.bus.close()
        assert all(peer.ended() for peer in peers)
        assert hub.bus.clients == {}
        assert len(hub.routes) == 0
    assert quiet == []
