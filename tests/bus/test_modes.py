"""Modes of clients that read slowly: soft and hard limits, orders, rates, and which publishers wait."""

from __future__ import annotations

import socket
import time
from functools import partial
from pathlib import Path

import pytest

from bccnd.bus.clients.client import HARD_MODES, SOFT_MODES
from bccnd.core.wire import frames
from tests.bus import packets as net_packets
from tests.bus.packets import accounted, collect, from_segment, mode, numbers, unbatched
from tests.rules import bus_limits
from tests.support import ANN, BOB, TINY, Hub, Peer, Who, dropped, gaps, messages, refusals, slow, turn_until

#: small enough for a socket that keeps little, and too large for many of them
PART = b"x" * 1000
numbered = partial(net_packets.numbered, tail=PART)
clog = partial(net_packets.clog, tail=PART)


def is_held(peer: Peer) -> bool:
    return peer.client.retry is not None


def waits(publisher: Peer) -> bool:
    """Whether a publisher waits, now that all that it sent so far was taken."""
    publisher.hub.settle()
    return is_held(publisher)


def slow_pair(hub: Hub, soft: str = "", hard: str = "", order: str = "") -> tuple[Peer, Peer]:
    """A client that reads slowly, in these modes, and a publisher."""
    one, publisher = slow(hub, b"a"), hub.connect()
    mode(one, soft, hard, order)
    return one, publisher


def blocked(hub: Hub, soft: str = "block", hard: str = "") -> tuple[Peer, Peer, int]:
    """A client that blocks, a publisher, and how many messages have been sent to the client."""
    one, publisher = slow_pair(hub, soft, hard)
    return one, publisher, clog(hub, one)


#: messages a second: one may come at once, and no other within the time of a test
SELDOM = 0.01


def rated(folder: Path) -> Hub:
    return Hub(folder, limits=bus_limits(user={"rate": SELDOM}))


def let_pass(hub: Hub, peer: Peer, seconds: float) -> None:
    """Set back the times that the bus has stored, as if ``seconds`` more had passed."""
    peer.client.progress -= seconds
    for timer in hub.loop._timers:
        timer.when -= seconds
    hub.turn()


def test_with_soft_discard_nothing_waits_but_the_gap(small: Hub) -> None:
    one = slow(small, b"a")
    mode(one, soft="discard")
    from_segment(small, [one], numbered(0, 50))
    assert (one.client.queue.messages, one.client.queue.bytes, len(one.client.queue)) == (0, 0, 1)
    packets = one.all()
    assert numbers(packets) == list(range(len(packets) - 1))
    assert packets[-1] == frames.gap(50 - len(packets) + 1)
    assert dropped(small) == {"not_queued": gaps(packets)}
    assert one.client.lost == gaps(packets)
    from_segment(small, [one], [b"MSG a\x009999"])
    assert numbers(one.all()) == [9999]


def test_neither_the_segment_nor_the_daemon_itself_waits(small: Hub) -> None:
    small.builder.open(b"relay01/bccnd/1")
    one, daemons = slow(small, b"a"), slow(small, b"!/bccn/", b"heartbeat/")
    mode(one, soft="block", hard="block")
    from_segment(small, [one], numbered(0, 100))
    assert one.client.queue.messages == 20
    packets = one.all()
    assert gaps(packets) == small.bus.counters.dropped["queue_messages"] == 100 - len(messages(packets, b"a")) > 0
    mode(daemons, soft="block", hard="block")
    for number in range(100):
        small.bus.announce(frames.LIVENESS + b"x", b"%d" % number)
        small.bus.publish(b"relay01/bccnd/1", b"heartbeat/x", b"")
    packets = daemons.all()
    assert sum(packet.startswith(b"MSG") for packet in packets) + gaps(packets) == 200


def test_with_hard_block_publishers_wait_while_the_queue_is_full_and_go_on_when_it_is_half_empty(small: Hub) -> None:
    one, publisher = slow_pair(small, hard="block")
    publisher.send(*numbered(0, 200))
    assert waits(publisher)
    assert one.client.queue.messages == 20
    got: list[bytes] = []
    while is_held(publisher):
        got += one.waiting()
        before = one.client.queue.messages
        small.turn(2)
    # When it went on, half of the queue had been taken, and not more than one look at the socket before.
    assert before > 10 or one.client.queue.messages >= 10
    got += collect(one, 200 - len(got))
    assert numbers(got) == list(range(200))
    assert dropped(small) == {}


@pytest.mark.parametrize("short", [0, 1, 10, 50, 100])
def test_with_hard_block_and_a_queue_that_is_full_in_bytes_publishers_wait_too(tmp_path: Path, short: int) -> None:
    with Hub(tmp_path, limits=bus_limits(queue={"messages": 10_000, "bytes": 20_000})) as hub:
        one, publisher = slow_pair(hub, hard="block")
        one.send(frames.request(frames.META_ON))
        one.all()
        count = clog(hub, one, 15)
        # As it was sent it still fits, but not with what meta puts before it.
        room = 20_000 - one.client.queue.bytes - len(b"MSG a\0") - short
        publisher.send(b"MSG a\0" + b"x" * room, *numbered(0, 50))
        assert waits(publisher)
        assert one.client.queue.bytes <= 20_000
        assert gaps(collect(one, count + 51)) == 0
        assert dropped(hub) == {}


def test_a_message_that_is_larger_than_the_whole_queue_does_not_block_for_ever(tmp_path: Path) -> None:
    with Hub(tmp_path, limits=bus_limits(queue={"bytes": 10_000})) as hub:
        one, publisher = slow_pair(hub, hard="block")
        publisher.send(*numbered(0, 5), b"MSG a\0" + b"y" * 20_000, *numbered(5, 1))
        hub.settle()
        packets = collect(one, 7)
        assert numbers(packet for packet in packets if packet[-1:] != b"y") == list(range(6))
        assert publisher.all() == [frames.error("too_long", b"a")]


@pytest.mark.parametrize(
    ("blocker", "publisher", "held"),
    [(ANN, ANN, True), (ANN, BOB, False), (ANN, None, False), (None, ANN, True), (None, None, True)],
)
@pytest.mark.parametrize(("soft", "hard"), [("block", "discard"), ("queue", "block")])
def test_a_client_blocks_publishers_of_its_user_and_root_blocks_all(
    town: Hub, blocker: Who | None, publisher: Who | None, held: bool, soft: str, hard: str
) -> None:
    one, other = slow(town, b"a", who=blocker), town.connect(who=publisher)
    mode(one, soft=soft, hard=hard)
    clog(town, one, 20)
    other.publish(b"a", b"1")
    assert waits(other) is held
    assert town.bus.counters.held["slow_reader"] == held


def test_messages_for_others_do_not_wait(small: Hub) -> None:
    _, publisher, _ = blocked(small)
    other = small.connect(b"b")
    publisher.publish(b"b", b"x")
    publisher.publish(b"!/a", b"x")
    assert messages(other.all(), b"b") == [b"x"]
    assert not is_held(publisher)


@pytest.mark.parametrize("key", [b"a", b"two words", b"!/app/x", b"!", b"!relay01/*"])
@pytest.mark.parametrize("meta", [False, True])
def test_whatever_the_form_of_the_key_its_publisher_waits(small: Hub, key: bytes, meta: bool) -> None:
    one, publisher = slow(small, b"", b"!/"), small.connect()
    mode(one, soft="block")
    if meta:
        one.send(frames.request(frames.META_ON))
        small.settle()
    count = clog(small, one)
    publisher.send(frames.request(frames.ECHO + b"off"))
    publisher.publish(key, b"x")
    assert waits(publisher)
    assert collect(one, count + 1)[-1].endswith(b"x")


def test_what_a_publisher_sends_behind_a_message_that_waits_is_done_behind_it(small: Hub) -> None:
    one, publisher, count = blocked(small)
    publisher.publish(b"a", b"%04d" % count)
    publisher.send(b"SUB b", b"CMSG !/bccn/sync\0now")
    small.settle()
    assert publisher.client.subscriptions == 0
    collect(one, count + 1)
    assert publisher.receive() == b"CMSG !/bccn/sync\0now"
    assert publisher.client.subscriptions == 1


def test_blocked_publisher_still_receives(small: Hub) -> None:
    _, publisher, _ = blocked(small)
    publisher.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY)
    publisher.publish(b"a", b"x")
    small.settle()
    for number in range(30):
        small.deliver(((publisher.client.fd,), b"MSG b\0%04d" % number + PART))
    assert is_held(publisher)
    collect(publisher, 30)
    assert is_held(publisher)
    small.deliver(((publisher.client.fd,), b"MSG b\x000030"))
    assert numbers([publisher.receive()], b"b") == [30]


def test_no_client_waits_for_itself(small: Hub) -> None:
    one = slow(small, b"a")
    mode(one, soft="block", hard="block")
    one.send(*numbered(0, 50))
    assert not waits(one)
    packets = one.all()
    assert accounted(packets) == 50


def test_two_that_wait_for_each_other_and_do_not_read_wait_only_as_long_as_patience_lasts(tmp_path: Path) -> None:
    with Hub(tmp_path, limits=bus_limits(queue={"messages": 20}, patience=0.05)) as hub:
        pair = slow(hub, b"a"), slow(hub, b"a")
        for one in pair:
            mode(one, soft="block")
        for one in pair:
            one.send(*numbered(0, 20))
        turn_until(hub.loop, lambda: hub.bus.counters.published == 40, "all that was sent")
        for one in pair:
            packets = one.all()
            assert accounted(packets) == 40


def test_a_publisher_waits_for_one_blocker_after_the_other(small: Hub) -> None:
    pair = slow(small, b"a"), slow(small, b"a")
    publisher = small.connect()
    counts = []
    for one in pair:
        mode(one, soft="block")
        counts.append(clog(small, one))
    publisher.publish(b"a", b"9999")
    small.settle()
    for number in (0, 1):
        collect(pair[number], counts[number])
        assert waits(publisher) is (number == 0)
    for one in pair:
        assert numbers([one.receive()]) == [9999]
    assert small.bus.counters.held["slow_reader"] in (1, 2)


@pytest.mark.parametrize("half", [False, True])
def test_blocked_publisher_that_closes_or_half_closes_loses_nothing(small: Hub, half: bool) -> None:
    one, publisher, count = blocked(small)
    publisher.send(b"SUB b", *numbered(count, 50))
    assert waits(publisher)
    if half:
        publisher.sock.shutdown(socket.SHUT_WR)
    else:
        publisher.close()
    small.turn(50)
    assert publisher.client.open
    assert not small.loop.watches(publisher.client.fd) or half
    assert numbers(collect(one, count + 50)) == list(range(count + 50))
    if half:
        small.settle()
        small.deliver(((publisher.client.fd,), b"MSG b\0x"))
        assert publisher.receive() == b"MSG b\0x"
    else:
        turn_until(small.loop, lambda: len(small.bus.clients) == 1, "the end of the publisher")


@pytest.mark.parametrize("cause", ["end", "full queue", "queue", "discard", "error"])
def test_a_client_that_no_longer_blocks_lets_publishers_go_on(small: Hub, cause: str) -> None:
    one, publisher, count = blocked(small, hard="error" if cause == "full queue" else "")
    other = small.connect(b"a")
    publisher.publish(b"a", b"%04d" % count)
    assert waits(publisher)
    if cause == "end":
        one.close()
    elif cause == "full queue":
        from_segment(small, [one], numbered(0, 30))
    else:
        mode(one, soft=cause)
    assert numbers(collect(other, 1)) == [count]
    assert publisher.all() == []
    assert small.bus.backpressure._blocked == {}
    if cause in ("queue", "discard"):
        packets = one.all()
        assert numbers(packets)[:count] == list(range(count))
        assert accounted(packets) == count + 1
        assert gaps(packets) == (cause == "discard")
    else:
        assert not one.client.open


def test_a_mode_that_still_blocks_lets_no_publisher_go_on(small: Hub) -> None:
    one, publisher, _ = blocked(small)
    publisher.send(*numbered(0, 100))
    small.settle()
    for again in ({"soft": "block"}, {"hard": "block"}, {"hard": "error"}, {"order": "stack"}):
        mode(one, **again)
        assert is_held(publisher)
    one.send(frames.request(frames.ECHO + b"off"))
    assert waits(publisher)
    assert one.client.queue.messages == 1
    # From now on publishers wait only for a full queue.
    mode(one, soft="queue", hard="block")
    assert is_held(publisher)
    assert one.client.queue.messages == 20


def test_reader_blocks_only_after_it_has_read_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Hub(tmp_path, limits=bus_limits(queue={"messages": 20}, patience=0.05)) as hub:
        one, publisher, count = blocked(hub)
        publisher.send(*numbered(count, 100))
        turn_until(hub.loop, lambda: hub.bus.counters.published == 100, "the end of patience")
        assert [bool(one.client.patient)] == [False]
        assert publisher.all() == []
        (record,) = [one for one in caplog.records if "has read nothing for 0.05 s" in one.getMessage()]
        assert vars(record)["remedy"]
        packets = one.all()
        assert accounted(packets) == count + 100
        assert gaps(packets) == sum(dropped(hub).values()) > 0
        # From now on it is waited for again.
        assert one.client.patient
        hub.reload(bus_limits(queue={"messages": 20}, patience=3600.0))
        clog(hub, one)
        publisher.publish(b"a", b"x")
        assert waits(publisher)


@pytest.mark.parametrize(("soft", "hard"), [("block", "discard"), ("queue", "block")])
def test_a_client_that_has_not_read_for_long_does_not_end_the_first_publisher(small: Hub, soft: str, hard: str) -> None:
    one, publisher = slow_pair(small, soft=soft, hard=hard)
    count = clog(small, one, 20)
    let_pass(small, one, small.bus.limits.patience + 1)
    publisher.publish(b"a", b"%04d" % count)
    small.settle()
    assert small.bus.counters.ended.all() == {"slow": 0, "pid_reused": 0, "bug": 0}
    assert publisher.client.open
    assert publisher.all() == []
    packets = one.all()
    assert accounted(packets) == count + 1


def test_without_patience_no_publisher_waits(tmp_path: Path) -> None:
    with Hub(tmp_path, limits=bus_limits(queue={"messages": 20}, patience=0.0)) as hub:
        one, publisher, count = blocked(hub)
        publisher.send(*numbered(0, 100))
        assert publisher.all() == []
        packets = one.all()
        assert accounted(packets) == count + 100


def test_a_client_that_reads_slowly_blocks(hub: Hub) -> None:
    # The kernel calls a socket writable only once most of what it keeps has been read. One that reads a little now and
    # then reads all the same.
    one, publisher = hub.connect(b"a"), hub.connect()
    mode(one, soft="block")
    count = clog(hub, one)
    publisher.send(*numbered(count, 10))
    assert waits(publisher)
    for _ in range(5):
        assert one.sock.recv(10_000)
        let_pass(hub, one, hub.bus.limits.patience + 1)
        assert one.client.patient, "it has read something in the meantime"
        assert is_held(publisher)
    let_pass(hub, one, hub.bus.limits.patience + 1)
    assert not one.client.patient, "it has read nothing any more"
    assert not is_held(publisher)


def test_holding_up_again_and_again_leaves_no_timers_behind(small: Hub) -> None:
    one, publisher = slow_pair(small, soft="block")
    before = len(small.loop._timers)
    publisher.send(*numbered(0, 300))
    collect(one, 300)
    assert small.bus.counters.held["slow_reader"] > 20
    assert len(small.loop._timers) - before <= 2


def test_all_clients_of_a_user_share_one_rate_for_messages_until_it_is_taken_away(tmp_path: Path) -> None:
    with rated(tmp_path) as hub:
        pair = hub.connect(), hub.connect()
        pair[0].send(*[b"SUB b", b"UNSUB b", b"CMSG echo/on", b"CMSG !/bccn/whoami", b"nonsense"] * 20)
        assert len(pair[0].all()) == 40
        pair[0].publish(b"a", b"x")
        pair[0].all()
        assert not is_held(pair[0])
        pair[1].publish(b"a", *[b"x"] * 25)
        assert waits(pair[1])
        hub.reload(bus_limits())
        turn_until(hub.loop, lambda: hub.bus.counters.published == 26)
        pair[1].publish(b"a", *[b"x"] * 500)
        pair[1].all()
        assert hub.bus.counters.held["rate"] == 1


def waiting_for_rate(hub: Hub, count: int) -> tuple[Peer, list[Peer]]:
    """A client, and publishers that have sent it their number: the first was published, the others wait."""
    one, publishers = hub.connect(b"a"), [hub.connect() for _ in range(count)]
    for number, publisher in enumerate(publishers):
        publisher.publish(b"a", b"%d" % number)
        hub.settle()
    return one, publishers


def next_token(hub: Hub, peer: Peer) -> None:
    """Let the time pass that a user needs for one more message of the rate `SELDOM`."""
    peer.client.account.stamp -= 1 / SELDOM
    let_pass(hub, peer, 1 / SELDOM)
    hub.settle()


def test_a_token_of_the_rate_unblocks_one_publisher_and_all_have_their_turn(tmp_path: Path) -> None:
    with rated(tmp_path) as hub:
        one, publishers = hub.connect(b"a"), [hub.connect() for _ in range(20)]
        timers = len(hub.loop._timers)
        for number, publisher in enumerate(publishers):
            publisher.publish(b"a", b"%d" % number, b"%d" % (100 + number))
        hub.settle()
        waiting, published = hub.bus.counters.held["rate"], hub.bus.counters.published
        assert (waiting, published) == (20, 1)
        assert len(hub.loop._timers) == timers + 1
        for turn in range(1, 21):
            waiting = hub.bus.counters.held["rate"]
            next_token(hub, one)
            assert hub.bus.counters.published == 1 + turn
            # One has published, and waits if it has another message; no other was tried.
            assert hub.bus.counters.held["rate"] - waiting <= 1
            assert len(hub.loop._timers) == timers + 1
        got = numbers(one.all())
        assert len(set(got)) == 21
        # Each that waited was resumed once before another one for the second time; one message did not have to wait.
        assert sorted(number % 100 for number in got[1:]) == list(range(20))


def test_a_publisher_does_not_overtake_those_that_wait_for_the_rate(tmp_path: Path) -> None:
    with rated(tmp_path) as hub:
        (one, _), late = waiting_for_rate(hub, 2), hub.connect()
        one.client.account.stamp -= 1 / SELDOM  # a token is there before the timer has run
        late.publish(b"a", b"2")
        assert waits(late)
        for _ in range(2):
            next_token(hub, one)
        assert numbers(one.all()) == [0, 1, 2]


def test_a_client_that_ends_waits_for_the_rate_no_longer(tmp_path: Path) -> None:
    with rated(tmp_path) as hub:
        one, publishers = waiting_for_rate(hub, 4)
        hub.bus.registry.end(publishers[1].client, "pid_reused", "a test")
        assert list(one.client.account.blocked) == [publisher.client for publisher in publishers[2:]]
        next_token(hub, one)
        assert numbers(one.all()) == [0, 2]
        for publisher in publishers[2:]:
            hub.bus.registry.end(publisher.client, "pid_reused", "a test")
        hub.settle()
        publishers[0].publish(b"a", b"4")
        next_token(hub, one)
        assert numbers(one.all()) == [4]
        assert not one.client.account.blocked


def test_another_rate_holds_at_once_for_those_that_wait(tmp_path: Path) -> None:
    with rated(tmp_path) as hub:
        one, _ = waiting_for_rate(hub, 4)
        hub.reload(bus_limits(user={"rate": 2 * SELDOM}))
        hub.settle()
        assert hub.bus.counters.published == 1
        assert hub.bus.counters.held["rate"] == 3
        one.client.account.stamp -= 0.5 / SELDOM
        let_pass(hub, one, 0.5 / SELDOM)
        assert numbers(one.all()) == [0, 1]


def test_a_slow_reader_with_room_unblocks_its_publishers_until_it_blocks_again(small: Hub) -> None:
    one, first, count = blocked(small)
    publishers = [first, *(small.connect() for _ in range(20))]
    for number, publisher in enumerate(publishers):
        publisher.publish(b"a", b"%04d" % number + b"y" * 3000)
        small.settle()
    assert all(map(is_held, publishers))
    got = list[bytes]()
    while any(map(is_held, publishers)):
        before, held = small.bus.counters.published, small.bus.counters.held["slow_reader"]
        got += one.waiting()
        small.turn()
        # Besides those that could publish only one was tried.
        assert small.bus.counters.held["slow_reader"] - held <= max(1, small.bus.counters.published - before)
    got += collect(one, count + len(publishers) - len(got))
    assert numbers(got)[count:] == list(range(len(publishers)))


def test_drain_takes_what_publishers_that_wait_have_sent(small: Hub) -> None:
    one, publisher, count = blocked(small)
    other = small.connect(b"a")
    publisher.publish(b"a", *(b"%04d" % number for number in range(count, count + 100)))
    assert waits(publisher)
    small.bus.acceptor.stop()
    one.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    small.bus.finish(time.monotonic() + 60)
    assert numbers(other.waiting()) == list(range(count, count + 100))
    packets = one.waiting()
    assert accounted(packets) == count + 100
    assert len(small.sent) == 100


def test_drain_takes_what_slowed_publishers_have_sent(tmp_path: Path) -> None:
    with rated(tmp_path) as hub:
        one, publisher = hub.connect(b"a"), hub.connect()
        publisher.send(*numbered(0, 50))
        publisher.close()
        hub.settle()
        hub.bus.finish(time.monotonic() + 60)
        assert numbers(one.waiting()) == list(range(50))


@pytest.mark.parametrize("order", ["queue", "stack", "random"])
def test_in_every_order_a_message_that_no_packet_to_this_client_can_hold_is_a_gap(hub: Hub, order: str) -> None:
    one = slow(hub, b"a")
    mode(one, order=order)
    count = clog(hub, one)
    from_segment(hub, [one], [b"MSG a\x000", b"MSG a\0" + b"y" * 1_000_000, b"MSG a\0z"])
    packets = collect(one, count + 3)
    assert len(messages(packets, b"a")) == count + 2
    assert gaps(packets) == 1
    assert dropped(hub) == {"too_big": 1}
    assert one.client.account.queue_bytes == 0


@pytest.mark.parametrize("hard", [name.decode() for name in HARD_MODES])
@pytest.mark.parametrize("soft", [name.decode() for name in SOFT_MODES])
@pytest.mark.parametrize("order", ["queue", "stack", "random"])
@pytest.mark.parametrize("together", [False, True], ids=["plain", "batched"])
def test_in_every_mode_all_that_was_sent_is_got(small: Hub, soft: str, hard: str, order: str, together: bool) -> None:
    one, publisher = slow_pair(small, soft, hard, order)
    one.send(frames.request(frames.BATCH_ON if together else frames.BATCH_OFF))
    packets: list[bytes] = []
    for number in range(120):
        if one.client.open:
            from_segment(small, [one], numbered(5000 + number, 1))
        publisher.send(*numbered(number, 1))
        small.settle()
        if number % 30 == 29:
            packets += unbatched(filter(None, one.waiting()))
            small.turn(2)
    if "error" in (soft, hard) and not one.client.open:
        assert small.bus.counters.ended["slow"] == 1
    else:
        packets += unbatched(collect(one, 240 - accounted(packets)))
        found = numbers(packets)
        assert len(set(found)) == len(found) == small.bus.counters.deliveries
        # Where publishers wait the segment overtakes them.
        for series in ([it for it in found if it < 5000], [it for it in found if it >= 5000]):
            assert order != "queue" or series == sorted(series)
        assert gaps(packets) == sum(dropped(small).values()) == one.client.lost
        assert refusals(packets) == []
    assert publisher.all() == []
    assert small.bus.counters.published == 120
    held = soft == "block" or (soft, hard) == ("queue", "block")
    assert bool(small.bus.counters.held["slow_reader"]) is held
    assert small.bus.queue_bytes == 0
