"""Control messages: replies and listings. Tags, what is set or asked for alone, and what is none: test_model.py."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bccnd.bus.clients.access_rules import admit_all
from bccnd.bus.requests.client_requests import MAX_UNFINISHED, PAGE
from bccnd.core.sending.send_queue import ENTRY
from bccnd.core.wire import frames
from tests.bus.packets import page
from tests.support import ANN, BOB, Hub, messages, own_identity, refusals, turn_until


def test_trace_needs_the_right_to_tap(tmp_path: Path) -> None:
    with Hub(tmp_path, trace=lambda raw: {"size": len(raw)}, others=[("path", admit_all)]) as hub:
        root, ann = hub.connect(), hub.connect(who=ANN)
        for peer, text in ((root, b"x" * 7), (root, None), (ann, b"x")):
            peer.send(frames.request(frames.TRACE, text))
        assert root.all() == [frames.control(frames.TRACE, b'{"size": %d}' % size) for size in (7, 0)]
        assert refusals(ann.all()) == [(b"not_permitted", frames.TRACE)]


def test_a_listing_ends_a_page_where_its_next_rows_take_work(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any] | None]:
        yield from (None, {"row": 1}, {"row": 2}, None, None, {"row": 3})

    with Hub(tmp_path, listings={b"sources": rows}, others=[("path", admit_all)]) as hub:
        one = hub.connect()
        pages = [page(one, topic) for topic in (b"sources", *[b"more"] * 3)]
        assert [[row["row"] for row in found["items"]] for found in pages] == [[], [1, 2], [], [3]]
        assert [found["more"] for found in pages] == [True, True, True, False]


def test_the_oldest_of_too_many_listings_of_a_user_is_dropped(tmp_path: Path) -> None:
    begun: list[weakref.ref[Any]] = []

    def rows() -> Iterator[dict[str, Any]]:
        listing = ({"row": number} for number in range(2 * PAGE))
        begun.append(weakref.ref(listing))
        return listing

    def kept() -> list[bool]:
        return [one() is not None for one in begun]

    with Hub(tmp_path, listings={b"sources": rows}, others=[("path", admit_all)]) as hub:
        other, mine = hub.connect(who=ANN), [hub.connect() for _ in range(MAX_UNFINISHED + 3)]
        for one in (other, *mine):
            assert page(one, b"sources")["more"]
        assert kept() == [True] + [False] * 3 + [True] * MAX_UNFINISHED
        for one in mine[:3]:
            one.send(frames.request(frames.STATS, b"more"))
            assert refusals(one.all()) == [(b"listing_dropped", frames.STATS)]
        for one in (other, mine[3]):
            assert [row["row"] for row in page(one, b"more")["items"]] == list(range(PAGE, 2 * PAGE))
            one.send(frames.request(frames.STATS, b"more"))
            while json.loads(one.receive().partition(b"\0")[2])["more"]:
                one.send(frames.request(frames.STATS, b"more"))
        assert kept() == [False] * 5 + [True] * (MAX_UNFINISHED - 1)
        mine[4].send(frames.request(frames.STATS, b"sources"))  # instead of the one before
        mine[4].receive()
        assert kept()[5] is False
        for one in mine[4:]:
            one.close()
        turn_until(hub.loop, lambda: len(hub.bus.clients) == 5)
        assert not any(kept())


def test_client_listing_shows_waiting_publishers_and_queues(town: Hub) -> None:
    ann, bob = town.connect(b"a", who=ANN), town.connect(who=ANN)
    reader = town.connect(who=BOB)
    ann.send(b"CMSG blocking/soft/block")
    ann.all()
    while not ann.client.queue:
        town.deliver(((ann.client.fd,), b"MSG x\0" + b"x" * 10_000))
    bob.send(frames.request(frames.TAG, b"tag"), b"MSG a\0x", b"MSG a\0y")
    town.settle()
    rows = page(reader, b"clients")["items"]
    assert [row["uid"] for row in rows] == [ANN.uid, ANN.uid, BOB.uid]
    assert [row["waits"] for row in rows] == [False, True, False]
    assert [row["queued"] for row in rows] == [1, 0, 0]
    assert rows[0]["queued_bytes"] == 10_006
    assert [(row["subscriptions"], row["patterns"]) for row in rows] == [(1, ["a"]), (0, []), (0, [])]
    assert {(row["published"], row["lost"], row["dialect"]) for row in rows} == {(0, 0, "path")}
    assert [row["pid"] for row in rows] == [one.client.peer.pid for one in (ann, bob, reader)]
    assert rows[0]["identity"] == ann.client.identity.decode()
    assert rows[1]["identity"].endswith("/tag")
    assert [row["program"] for row in rows] == ["ann", "ann", "bob"]
    assert page(reader, b"users")["items"] == [
        {"uid": ANN.uid, "clients": 2, "subscriptions": 1, "queued_bytes": 10_006 + len(b"MSG a\0x") + 2 * ENTRY},
        {"uid": BOB.uid, "clients": 1, "subscriptions": 0, "queued_bytes": 0},
    ]


def test_without_a_segment_every_key_is_a_good_one(tmp_path: Path) -> None:
    """An exclamation mark is a letter then, but in keys of the bus itself."""
    with Hub(tmp_path, bridged=False) as hub:
        one, other, own = hub.connect(b""), hub.connect(b"other"), hub.connect(b"!/", b"!/app/x")
        for key in (b"!", b"!x", b"!relay01/*", b"two words", b"", b"a:b", b"\xff", b"a|b", b"x" * 5000, b"!?"):
            exact = hub.connect(key[:1024])
            one.publish(key, b"x" * 100_000)
            assert messages(one.all(), key) == [b"x" * 100_000]
            assert len(exact.all()) == (len(key) <= 1024)
            exact.close()
            hub.settle()
        assert other.all() == own.all() == hub.sent == []
        assert hub.bus.counters.errors.all() == {}
        for key in (b"!/bccn/x", b"!/tap/accepted", b"!/cred/x"):
            own.publish(key, b"")
            assert refusals(own.all()) == [(b"reserved_key", key)]
        own.publish(b"!/app/x", b"1")
        assert own.all() == [b"MSG !/app/x\x001"]
        one.send(frames.request(frames.TRACE, b"x"), frames.request(frames.TAG, b"x"), frames.request(frames.WHOAMI))
        refused, answer = one.all()
        assert refusals([refused]) == [(b"unknown_control", frames.TRACE)]
        assert answer == frames.control(frames.WHOAMI, own_identity() + b"/x")
