"""Clients in batch mode get the same messages in fewer packets; histories with batches are in test_modes.py."""

from __future__ import annotations

import socket

import pytest

from bccnd.core.matching.receivers import Receivers
from bccnd.core.wire import frames
from tests.bus.packets import numbered, numbers, to, unbatched
from tests.support import Hub, Peer, dropped, turn_until


def batch(hub: Hub, *peers: Peer, wanted: bool = True) -> None:
    """Have them in batch mode from now on, or no more."""
    for one in peers:
        one.send(frames.request(frames.BATCH_ON if wanted else frames.BATCH_OFF))
    hub.settle()


def batched(hub: Hub, *patterns: bytes) -> Peer:
    one = hub.connect(*patterns)
    batch(hub, one)
    return one


@pytest.mark.parametrize("gathered", [0, 3])
def test_a_message_alone_is_sent_at_once_behind_others(hub: Hub, gathered: int) -> None:
    both = [batched(hub, b"a"), hub.connect(b"a")]
    if gathered:
        hub.deliver(*to(both, numbered(0, gathered)))
    hub.deliver(*to(both, numbered(gathered, 1)))
    sent = [one.sock.recv(1 << 16, socket.MSG_DONTWAIT | socket.MSG_PEEK) for one in both[gathered > 0 :]]
    assert [numbers([packet]) for packet in sent] == [[0]] * len(sent)
    for one in both:
        assert numbers(one.all()) == list(range(gathered + 1))


def test_answers_wait_in_their_place_between_batches(hub: Hub) -> None:
    one = batched(hub, b"a")
    count = 0
    while not one.client.queue:
        hub.deliver(*to([one], numbered(count, 1, b"x" * 30_000)))
        hub.turn(1)
        count += 1
    for first in (count, count + 3):
        hub.deliver(*to([one], numbered(first, 3)))
        hub.bus.replies.answer(one.client, frames.SYNC, b"%d" % first)
    syncs = [frames.control(frames.SYNC, b"%d" % first) for first in (count, count + 3)]
    assert unbatched(one.all())[count:] == [*numbered(count, 3), syncs[0], *numbered(count + 3, 3), syncs[1]]


@pytest.mark.parametrize("together", [False, True], ids=["plain", "batched"])
def test_messages_for_a_client_that_has_left_are_counted(hub: Hub, together: bool) -> None:
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
    assert (hub.bus.counters.deliveries, dropped(hub)) == (8, {})


@pytest.mark.parametrize("when", ["before", "after"])
def test_reused_descriptor_gets_nothing_of_its_former_client(hub: Hub, when: str) -> None:
    one, witness, publisher = batched(hub, b"a"), hub.connect(b"a"), hub.connect()
    fd = one.client.fd
    if when == "before":
        hub.deliver(*to([one, witness], numbered(0, 3)))
    other = hub.knock()
    hub.bus.registry.end(one.client)
    # As if it had been closed and opened again within the round.
    one.client.sock.close()
    turn_until(hub.loop, lambda: fd in hub.bus.clients, "another one behind this descriptor")
    other.send(b"SUB b")
    if when == "after":
        hub.deliver(*to([witness], numbered(0, 3)))
    assert other.all() == []
    assert numbers(witness.all()) == [0, 1, 2]
    publisher.publish(b"b", b"1", b"2")
    assert other.all() == [b"MSG b\x001", b"MSG b\x002"]  # not in batch mode


def test_no_groups_are_kept_when_the_last_client_has_left(hub: Hub) -> None:
    peers = [batched(hub, b"a"), hub.connect(b"a")]
    sets = [Receivers(tuple(one.client.fd for one in some)) for some in (peers, peers[:1], peers[::-1])]
    hub.deliver(*((receivers, frame) for receivers in sets for frame in numbered(0, 2)))
    hub.turn(1)
    assert all(one.single.groups or one.batched.groups for one in sets)
    for one in peers:
        one.close()
    turn_until(hub.loop, lambda: not hub.bus.clients, "their end")
    assert not any(one.single.groups or one.batched.groups for one in sets)
