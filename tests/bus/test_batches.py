"""Batches: clients get the same messages as without them."""

from __future__ import annotations

import itertools
import random
import socket
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from bccnd.core.matching.receivers import Receivers
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import Arrival
from bccnd.core.sending.message_groups import LENGTH, MAX_PORTION
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import frames
from bccnd.core.wire.frames import MAX_BATCH
from tests.bus.packets import LARGE, accounted, clog, collect, from_segment, mode, numbered, numbers, to, unbatched
from tests.rules import bus_limits
from tests.support import Hub, Peer, datagram, dropped, gaps, slow, turn_until

ORDERS: Final = ["queue", "stack", "random"]


def batch(hub: Hub, *peers: Peer, wanted: bool = True) -> None:
    """Have them in batch mode from now on, or no more."""
    for one in peers:
        one.send(frames.request(frames.BATCH_ON if wanted else frames.BATCH_OFF))
    hub.settle()


def batched(hub: Hub, *patterns: bytes) -> Peer:
    one = hub.connect(*patterns)
    batch(hub, one)
    return one


def fill(hub: Hub, peer: Peer) -> int:
    """Fill a client's socket, and leave its queue empty; how many large messages that took."""
    count = clog(hub, peer) - 1
    collect(peer, count + 1)
    for number in range(count):
        from_segment(hub, [peer], numbered(number, 1, LARGE))
    assert peer.client.queue.messages == 0
    return count


def in_place(packets: Iterable[bytes], due: list[int]) -> None:
    """What was got is what was due, and each gap stands for just as many of them where it stands."""
    place = 0
    for frame in unbatched(packets):
        if frame.startswith(b"MSG "):
            assert numbers([frame]) == [due[place]]
            place += 1
        else:
            place += gaps([frame])
    assert place == len(due)


def nothing_waits(hub: Hub) -> None:
    for account in hub.bus.quota:
        assert account.queue_bytes == 0
    assert hub.bus.queue_bytes == 0
    assert hub.bus.queues.waiting == set()


@pytest.mark.parametrize("gathered", [0, 3])
def test_a_message_that_is_alone_is_sent_at_once_behind_what_has_gathered(tmp_path: Path, gathered: int) -> None:
    with Hub(tmp_path) as hub:
        both = [batched(hub, b"a"), hub.connect(b"a")]
        if gathered:
            hub.deliver(*to(both, numbered(0, gathered)))
        hub.deliver(*to(both, numbered(gathered, 1)))
        sent = [one.sock.recv(1 << 16, socket.MSG_DONTWAIT | socket.MSG_PEEK) for one in both[gathered > 0 :]]
        assert [numbers([packet]) for packet in sent] == [[0]] * len(sent)
        hub.turn(1)
        for one in both:
            assert numbers(collect(one, gathered + 1)) == list(range(gathered + 1))
            assert one.all() == []


@pytest.mark.parametrize("in_batch", [False, True])
def test_no_groups_are_kept_when_the_last_client_has_left(hub: Hub, in_batch: bool) -> None:
    peers = [hub.connect(b"a"), hub.connect(b"a")]
    batch(hub, peers[0], wanted=in_batch)
    sets = [Receivers(tuple(one.client.fd for one in some)) for some in (peers, peers[:1], peers[::-1])]
    for _ in range(2):
        hub.deliver(*((receivers, frame) for receivers in sets for frame in numbered(0, 2)))
        hub.turn(1)
    assert all(one.single.groups or one.batched.groups for one in sets)
    for one in peers:
        one.close()
    turn_until(hub.loop, lambda: not hub.bus.clients, "their end")
    assert not any(one.single.groups or one.batched.groups for one in sets)


class Wire:
    """What the segment brings goes the whole way in, by rules and routes."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.ingress = Ingress(IntegrityChecker(), hub.sources, AnonymousDedup(hub.sources.limits), hub.routes)
        self.counters = SegmentCounters("here")
        self.seqs = itertools.count(1)

    def bring(self, chan: str, *payloads: bytes) -> None:
        datagrams = [datagram("relay02/x/1", next(self.seqs), chan, payload) for payload in payloads]
        peers = ["10.0.0.9:5400"] * len(datagrams)
        found = Deliveries()
        self.ingress.feed(found, Arrival(self.counters, peers, time.monotonic(), time.time_ns()), datagrams)
        self.hub.bus.fanout.deliver(found)


def test_messages_of_a_round_share_a_packet_in_batch_mode(hub: Hub) -> None:
    one = hub.connect(b"a")
    for wanted in (False, True, True, False, False, True):
        batch(hub, one, wanted=wanted)
        assert hub.bus.queues.batched == ({one.client.fd} if wanted else set())
        for count in (2, 5, 1, 100):
            from_segment(hub, [one], numbered(0, count))
            together = wanted and count > 1
            assert one.all() == ([frames.batch(numbered(0, count))] if together else numbered(0, count))
        one.publish(b"a", *(frame[6:] for frame in numbered(0, 3)))
        assert unbatched(one.all()) == numbered(0, 3)


def test_batch_mode_switches_in_message_order(hub: Hub) -> None:
    one = batched(hub, b"a")
    one.send(*numbered(0, 3), frames.request(frames.BATCH_OFF), *numbered(3, 2))
    assert one.all() == [frames.batch(numbered(0, 3)), *numbered(3, 2)]
    one.send(*numbered(0, 2), frames.request(frames.BATCH_ON), *numbered(2, 3))
    assert one.all() == [*numbered(0, 2), frames.batch(numbered(2, 3))]


def test_the_tap_goes_into_batches_in_its_order(hub: Hub) -> None:
    one = batched(hub, frames.TAP + b"accepted", b"a")
    wire = Wire(hub)
    wire.bring("a", b"1", b"2")
    hub.turn(1)
    (packet,) = one.all()
    found = frames.read_batch(packet)
    assert [frame.partition(b"\0")[0] for frame in found] == [b"MSG a", b"MSG !/tap/accepted"] * 2
    assert [frame[-3:] for frame in found[1::2]] == [b"a|1", b"a|2"]
    verdict, segment, _, _, peer, tapped = frames.read_tapped(*frames.read(found[1])[1:])
    assert (verdict, segment, peer) == ("accepted", "here", "10.0.0.9:5400")
    assert tapped == b"BCCN1[17]relay02/x/1:1:a|1"
    assert hub.bus.counters.deliveries == 4


def test_what_is_more_than_a_packet_holds_is_split_and_no_packet_is_made_smaller_than_needed(hub: Hub) -> None:
    one = batched(hub, b"a")
    sent = numbered(0, 300, b"x" * 1000)
    from_segment(hub, [one], sent)
    got = one.all()
    assert unbatched(got) == sent
    assert all(len(packet) <= MAX_BATCH for packet in got)
    assert all(len(packet) > MAX_BATCH - 1100 for packet in got[:-1])
    assert len(got) == 5
    assert hub.bus.counters.deliveries == 300


@pytest.mark.parametrize("more", [-1, 0, 1, 1000, 100_000])
def test_oversized_message_is_sent_alone_in_order(hub: Hub, more: int) -> None:
    one = batched(hub, b"a")
    large = numbered(2, 1, b"y" * (MAX_PORTION - LENGTH - len(numbered(2, 1)[0]) + more))
    sent = [*numbered(0, 2), *large, *numbered(3, 2)]
    from_segment(hub, [one], sent)
    got = one.all()
    assert got == [frames.batch(sent[:2]), *large, frames.batch(sent[3:])]
    assert (hub.bus.counters.deliveries, dropped(hub)) == (5, {})


@pytest.mark.parametrize("together", [False, True], ids=["plain", "batched"])
def test_a_message_that_no_packet_can_hold_is_a_gap_in_its_place(hub: Hub, together: bool) -> None:
    pair = [hub.connect(b"a"), hub.connect(b"a")]
    batch(hub, *pair, wanted=together)
    from_segment(hub, pair, [*numbered(0, 2), *numbered(2, 1, b"y" * 20_000_000), *numbered(3, 2)])
    for one in pair:
        in_place(collect(one, 5), list(range(5)))
    assert (hub.bus.counters.deliveries, dropped(hub)) == (8, {"too_big": 2})
    nothing_waits(hub)


@pytest.fixture
def narrow(tmp_path: Path) -> Any:
    """A bus that keeps 20 messages for a client."""
    limits = bus_limits(queue={"messages": 20, "bytes": 20 * 40_000}, user={"queue_bytes": 64 << 20})
    with Hub(tmp_path, limits=limits) as one:
        yield one


def test_control_messages_wait_in_their_place_between_batches(narrow: Hub) -> None:
    one = batched(narrow, b"a")
    count = clog(narrow, one)
    for first in (count, count + 3):
        narrow.deliver(*to([one], numbered(first, 3)))
        narrow.bus.replies.answer(one.client, frames.SYNC, b"%d" % first)
    narrow.turn(1)
    got: list[bytes] = []
    while not got or not got[-1].endswith(b"\0%d" % (count + 3)):
        got.append(one.receive())
    assert unbatched(got) == [
        *(frame for number in range(count) for frame in numbered(number, 1, LARGE)),
        *numbered(count, 3),
        frames.control(frames.SYNC, b"%d" % count),
        *numbered(count + 3, 3),
        frames.control(frames.SYNC, b"%d" % (count + 3)),
    ]


@pytest.mark.parametrize(("soft", "hard"), [("error", "discard"), ("queue", "error")])
def test_client_in_error_mode_is_ended_and_others_get_all(narrow: Hub, soft: str, hard: str) -> None:
    three = [batched(narrow, b"a") for _ in range(3)]
    one = three[1]
    mode(one, soft=soft, hard=hard)
    count = 60
    for first in range(0, count, 4):
        from_segment(narrow, three, numbered(first, 4, LARGE))
        for other in (three[0], three[2]):
            assert numbers(other.all()) == list(range(first, first + 4))
    assert not one.client.open
    assert narrow.bus.counters.ended.all() == {"slow": 1, "pid_reused": 0, "bug": 0}
    got = one.waiting()
    # Every gap was reported.
    assert numbers(got) == list(range(len(unbatched(got))))
    assert narrow.bus.counters.deliveries == len(unbatched(got)) + 2 * count
    lost = dropped(narrow)
    assert lost["client_ended"] == 1
    assert set(lost) <= {"client_ended", "client_gone"}
    # Each message is accounted for, three times.
    assert narrow.bus.counters.deliveries + sum(lost.values()) == 3 * count
    assert narrow.bus.queues.batched == {other.client.fd for other in (three[0], three[2])}
    nothing_waits(narrow)


@pytest.mark.parametrize("together", [False, True], ids=["plain", "batched"])
@pytest.mark.parametrize(("soft", "hard", "waiting"), [("block", "discard", 1), ("queue", "block", 20)])
@pytest.mark.parametrize("blocked", [False, True])
def test_blocked_client_loses_nothing(
    narrow: Hub, together: bool, soft: str, hard: str, waiting: int, blocked: bool
) -> None:
    one, publisher = narrow.connect(b"a"), narrow.connect()
    batch(narrow, one, wanted=together)
    count = clog(narrow, one) if blocked else fill(narrow, one)
    mode(one, soft=soft, hard=hard)
    # More than the queue has places for, and all of it is read at once.
    publisher.send(*numbered(count, 200))
    narrow.settle()
    assert publisher.client.retry is not None
    assert one.client.queue.messages == waiting
    in_place(collect(one, count + 200), list(range(count + 200)))
    assert dropped(narrow) == {}
    nothing_waits(narrow)


@pytest.mark.parametrize("together", [False, True], ids=["plain", "batched"])
def test_nor_do_many_that_publish_at_once_when_the_queue_is_nearly_full(tmp_path: Path, together: bool) -> None:
    # However many come in one round: none is published for which there is no room any more.
    with Hub(tmp_path, limits=bus_limits(queue={"messages": 200, "bytes": 60 << 20})) as hub:
        one, publishers = hub.connect(b"a"), [hub.connect() for _ in range(5)]
        batch(hub, one, wanted=together)
        mode(one, hard="block")
        count = clog(hub, one, 190)
        for place, publisher in enumerate(publishers):
            publisher.send(*numbered(count + 40 * place, 40))
        hub.settle()
        assert one.client.queue.messages <= 200
        got = collect(one, count + 200)
        assert sorted(numbers(got)) == list(range(count + 200))
        assert dropped(hub) == {}
        nothing_waits(hub)


@pytest.mark.parametrize("order", ORDERS)
def test_what_waits_goes_out_together_in_the_order_of_choice(narrow: Hub, order: str) -> None:
    one = batched(narrow, b"a")
    mode(one, order=order)
    count = clog(narrow, one)
    from_segment(narrow, [one], numbered(count, 15, b"x" * 10))
    from_segment(narrow, [one], numbered(count + 15, 10, b"x" * 10))
    got = collect(one, count + 25)
    in_kernel = count - 1
    waited = list(range(in_kernel, count + 19))
    found = numbers(got)
    assert found[:in_kernel] == list(range(in_kernel))
    assert found[in_kernel:] == (waited[::-1] if order == "stack" else waited)
    place = next(number for number, packet in enumerate(got) if packet == frames.gap(6))
    # Behind the last one that there was room for: first in a stack, last elsewhere.
    assert (place == in_kernel) if order == "stack" else (place == len(got) - 1)
    assert dropped(narrow) == {"queue_messages": 6}


@pytest.mark.parametrize("together", [False, True], ids=["plain", "batched"])
def test_what_is_for_a_client_that_has_left_is_counted_message_by_message(hub: Hub, together: bool) -> None:
    one, other = hub.connect(b"a"), hub.connect(b"a")
    batch(hub, one, wanted=together)
    one.close()
    hub.deliver(*to([one, other], numbered(0, 7)))
    hub.bus.fanout.send_batches()
    assert other.waiting() == numbered(0, 7)
    assert (hub.bus.counters.deliveries, dropped(hub)) == (7, {"client_gone": 7})


def test_ended_client_gets_its_open_batch(hub: Hub) -> None:
    one, other = batched(hub, b"a"), batched(hub, b"a")
    hub.deliver(*to([one, other], numbered(0, 3)))
    hub.bus.registry.end(one.client, "slow", "it is to be")
    hub.deliver(*to([other], numbered(3, 2)))
    assert one.waiting() == [frames.batch(numbered(0, 3))]
    assert one.ended()
    assert numbers(other.all()) == list(range(5))
    assert hub.bus.counters.deliveries == 8
    assert dropped(hub) == {}


@pytest.mark.parametrize("together", [False, True], ids=["plain", "batched"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_reused_descriptor_gets_nothing_of_the_former_client(hub: Hub, together: bool, when: str) -> None:
    one, witness = batched(hub, b"a"), hub.connect(b"a")
    batch(hub, witness, wanted=together)
    fd = one.client.fd
    from_segment(hub, [one, witness], numbered(0, 2))
    if when == "before":
        hub.deliver(*to([one, witness], numbered(2, 3)))
    other = hub.knock()
    hub.bus.registry.end(one.client)
    # As if it had been closed and opened again within the round.
    one.client.sock.close()
    turn_until(hub.loop, lambda: fd in hub.bus.clients, "another one behind this descriptor")
    other.send(b"SUB b")
    if when == "after":
        hub.deliver(*to([witness], numbered(2, 3)))
    assert other.all() == []
    assert numbers(witness.all()) == list(range(5))
    assert fd not in hub.bus.queues.batched
    wire = Wire(hub)
    wire.bring("b", b"1", b"2")
    assert other.waiting() == [b"MSG b\x001", b"MSG b\x002"]


def test_the_end_of_the_bus_sends_what_has_gathered(hub: Hub) -> None:
    one, publisher = batched(hub, b"a"), hub.connect()
    publisher.send(*numbered(0, 10))
    hub.bus.acceptor.stop()
    hub.bus.finish(time.monotonic() + 60)
    assert numbers(one.waiting()) == list(range(10))


class Reader:
    """A client that reads when it likes, and what it is to get."""

    def __init__(self, peer: Peer, order: bytes) -> None:
        self.peer = peer
        self.order = order
        self.together = False
        self.due: list[bytes] = []
        self.got: list[bytes] = []

    def read(self, count: int) -> None:
        for _ in range(count):
            try:
                packet = self.peer.sock.recv(1 << 20)
            except BlockingIOError:
                return
            assert packet, "it was ended"
            self.got += unbatched([packet])


@pytest.mark.parametrize("seed", range(8))
def test_every_client_gets_its_messages_in_order_in_any_batch_mode(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    limits = bus_limits(queue={"messages": 30, "bytes": 400_000}, user={"queue_bytes": 900_000})
    with Hub(tmp_path, limits=limits) as hub:
        publisher = hub.connect()
        readers = []
        for number in range(7):
            order = chance.choice([b"queue", b"queue", b"stack", b"random"])
            # The publisher reaches one half of them, the segment all.
            peer = (slow if chance.random() < 0.5 else Hub.connect)(hub, *([b"a"] if number % 2 else []))
            peer.send(
                frames.request(frames.ORDER + order),
                frames.request(frames.SOFT + chance.choice([b"queue", b"queue", b"discard"])),
            )
            readers.append(Reader(peer, order))
        hub.settle()
        # The same receivers again and again, as routes have them.
        tuples = [tuple(chance.sample(range(7), chance.randint(1, 7))) for _ in range(6)]
        known = [Receivers(tuple([readers[place].peer.client.fd for place in places])) for places in tuples]
        serial = 0
        for _ in range(120):
            what = chance.random()
            if what < 0.25:
                one = chance.choice(readers)
                one.together = not one.together
                batch(hub, one.peer, wanted=one.together)
            elif what < 0.5:
                tail = b"x" * chance.choice([0, 100, 1300])
                for frame in numbered(serial, chance.randint(1, 20), tail):
                    serial += 1
                    publisher.send(frame)
                    for one in readers[1::2]:
                        one.due.append(frame)
                hub.settle()
            else:
                for _ in range(chance.randint(1, 3)):
                    found: list[tuple[Receivers, bytes]] = []
                    tail = b"x" * chance.choice([0, 100, 1300, 30_000, 70_000])
                    for frame in numbered(serial, chance.choice([1, 2, 40]), tail):
                        serial += 1
                        which = chance.randrange(6)
                        found.append((known[which] if chance.random() < 0.8 else Receivers(known[which].all), frame))
                        for place in tuples[which]:
                            readers[place].due.append(frame)
                    hub.deliver(*found)
                    hub.turn(chance.randrange(2))
            chance.choice(readers).read(chance.randint(0, 60))
            hub.turn(chance.randrange(3))
            (account,) = hub.bus.quota
            assert account.queue_bytes == sum(one.peer.client.queue.memory for one in readers) <= 900_000
            queues = [one.peer.client.queue for one in readers]
            assert all(queue.messages <= 30 and queue.bytes <= 400_000 for queue in queues)
        for one in readers:
            while accounted(one.got) < len(one.due):
                one.got += unbatched([one.peer.receive()])
            hub.turn()
            one.read(1)
        for one in readers:
            assert accounted(one.got) == len(one.due)
            assert gaps(one.got) == one.peer.client.lost
            if one.order == b"queue":
                in_place(one.got, [numbers([frame])[0] for frame in one.due])
            else:
                assert not Counter(frame for frame in one.got if frame.startswith(b"MSG ")) - Counter(one.due)
        lost = sum(gaps(one.got) for one in readers)
        assert lost == sum(dropped(hub).values()) > 0
        assert hub.bus.counters.deliveries == sum(len(one.due) for one in readers) - lost
        assert hub.bus.counters.ended.all() == {"slow": 0, "pid_reused": 0, "bug": 0}
        nothing_waits(hub)
