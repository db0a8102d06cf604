"""Limits of users: what their clients may take up together, and that every charge is taken back."""

from __future__ import annotations

import gc
import itertools
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.bus.clients.access_rules import admit_all
from bccnd.bus.clients.client import HARD_MODES, SOFT_MODES, Client
from bccnd.bus.clients.registry import PORTION, PORTIONS
from bccnd.core.wire import frames
from bccnd.net.loop import READABLE
from tests.bus.leftovers import every_charge_is_what_is_kept, nothing_is_left
from tests.limits import descriptors
from tests.rules import bus_limits
from tests.support import ANN, BOB, TINY, Hub, Peer, Who, dropped, gaps, messages, slow, turn_until

#: how long the randomised tests go on
STEPS = int(os.environ.get("BCCND_STEPS", "400"))


def limited(folder: Path, *, queue_messages: int = 1000, **user: float) -> Hub:
    limits = bus_limits(queue={"messages": queue_messages}, user=user)
    return Hub(folder, limits=limits, others=[("path", admit_all)])


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"user": {"clients": 2}}, "too_many_clients_of_user"), ({"max_clients": 2}, "too_many_clients")],
)
def test_one_client_more_than_may_be_is_refused_until_another_leaves(
    tmp_path: Path, limits: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Hub(tmp_path, limits=bus_limits(**limits), others=[("path", admit_all)]) as hub:
        mine = [hub.connect(b"a", who=ANN) for _ in range(2)]
        before = descriptors()
        for _ in range(3):
            third = hub.knock(ANN)
            hub.turn()
            assert third.receive() == b"CMSG !/bccn/error\0%b " % reason.encode()
            assert third.ended()
            third.close()
        assert descriptors() == before
        assert len(hub.bus.quota) == 1
        every_charge_is_what_is_kept(hub)
        assert hub.bus.counters.refused[reason] == sum(hub.bus.counters.refused.all().values()) == 3
        (record,) = [one for one in caplog.records if "refused" in one.getMessage()]
        assert "ann" in record.getMessage()
        assert "clients" in vars(record)["remedy"]
        if "user" in limits:
            assert hub.connect(who=BOB).all() == hub.connect().all() == []
        clients = len(hub.bus.clients)
        mine[0].close()
        turn_until(hub.loop, lambda: len(hub.bus.clients) < clients)
        hub.connect(who=ANN).publish(b"a", b"x")
        assert mine[1].all() == [b"MSG a\0x"]
        every_charge_is_what_is_kept(hub)


def test_all_queues_of_a_user_share_one_limit_and_other_users_have_their_own(tmp_path: Path) -> None:
    with limited(tmp_path, queue_bytes=20_000) as hub:
        mine = [slow(hub, b"a", who=ANN) for _ in range(3)]
        other = slow(hub, b"a", who=BOB)
        publisher = hub.connect()
        for _ in range(25):
            publisher.publish(b"a", b"x" * 1000)
            publisher.all()
            every_charge_is_what_is_kept(hub)
            assert mine[0].client.account.queue_bytes <= 20_000
        assert set(dropped(hub)) == {"user_queue_bytes"}
        assert other.client.lost == 0 or other.client.account.queue_bytes > 18_000
        for peer in (*mine, other):
            packets = peer.all()
            assert len(messages(packets, b"a")) + gaps(packets) == 25
            assert gaps(packets) == peer.client.lost
        every_charge_is_what_is_kept(hub)
        assert hub.bus.queue_bytes == 0


def test_answers_are_charged_too_and_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    with limited(tmp_path, queue_bytes=5000) as hub:
        one = slow(hub, who=ANN)
        one.send(*[b"CMSG !/bccn/sync\0" + b"x" * 1000] * 20)
        hub.settle()
        assert 0 < one.client.account.queue_bytes <= 5000
        every_charge_is_what_is_kept(hub)
        untold = hub.bus.counters.control_dropped
        assert untold > 0
        assert len(one.all()) + untold == 20
        assert one.client.account.queue_bytes == 0
        hub.bus.replies.answer(one.client, frames.SYNC, b"x" * 20_000_000)  # which no socket takes
        assert one.client.open
        assert hub.bus.counters.control_dropped == untold + 1


def test_a_client_that_discards_does_not_block_when_its_user_has_no_room(tmp_path: Path) -> None:
    with limited(tmp_path, queue_bytes=5000) as hub:
        full, one, publisher = slow(hub), slow(hub, b"a"), hub.connect()
        hub.deliver(*[((full.client.fd,), b"MSG x\0" + b"x" * 1000)] * 20)
        one.send(b"CMSG blocking/soft/discard", b"CMSG blocking/hard/block")
        hub.settle()
        publisher.publish(b"a", *[b"x" * 1000] * 20)
        hub.settle()
        assert publisher.client.retry is None
        assert publisher.all() == []


def test_with_hard_block_a_user_without_room_blocks_its_publishers_until_there_is_some(tmp_path: Path) -> None:
    with limited(tmp_path, queue_bytes=5000) as hub:
        full, one, publisher = slow(hub), slow(hub, b"a"), hub.connect()
        one.send(b"CMSG blocking/hard/block")
        hub.settle()
        publisher.publish(b"a", *[b"%04d" % number + b"x" * 500 for number in range(100)])
        hub.settle()
        assert publisher.client.retry is not None
        assert dropped(hub) == {}
        hub.deliver(*[((full.client.fd,), b"MSG x\0" + b"x" * 1000)] * 20)
        packets: list[bytes] = []
        while len(messages(packets, b"a")) + gaps(packets) < 100:
            packets.append(one.receive())
            every_charge_is_what_is_kept(hub)
        assert gaps(packets) == one.client.lost == 0


def test_connections_are_charged_to_their_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(tmp_path, clients=3) as hub:
        hub.connect()
        for _ in range(2):
            hub.connect(who=ANN)
        charged: list[int] = []
        monkeypatch.setattr(hub.bus.registry, "charge", lambda account, _begun: charged.append(account.uid))
        hub.connect(who=ANN)
        assert charged == [ANN.uid]
        hub.knock(ANN)  # to be refused
        turn_until(hub.loop, lambda: hub.bus.counters.refused["too_many_clients_of_user"])
        assert charged == [ANN.uid] * 2


def test_patterns_of_all_that_leave_at_once_are_removed_in_bounded_steps(tmp_path: Path) -> None:
    with limited(tmp_path) as hub:
        crowd = [hub.connect(*(b"%d/*" % number for number in range(4 * PORTION))) for _ in range(20)]
        for one in crowd:
            hub.bus.registry.end(one.client)
        left = [hub.routes.subscriptions]
        assert left == [20 * 3 * PORTION]
        while left[-1]:
            hub.turn(1)
            left.append(hub.routes.subscriptions)
        assert max(before - after for before, after in itertools.pairwise(left)) <= PORTIONS * PORTION
        hub.turn(1)
        assert all(one.client.sock.fileno() < 0 for one in crowd)


def test_a_client_that_connects_or_ends_is_compared_only_with_those_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = itertools.count(1000)

    class Strange(dict[int, Client]):
        """The clients by descriptor, which for a while are not to be walked over."""

        walked = 0

        def values(self) -> Any:
            self.walked += 1
            return super().values()

        def __iter__(self) -> Iterator[int]:
            self.walked += 1
            return super().__iter__()

    with limited(tmp_path) as hub:
        identify = hub.bus.acceptor.identifier.identify
        monkeypatch.setattr(
            hub.bus.acceptor.identifier, "identify", lambda sock: identify(sock)._replace(pid=next(pids), started=1)
        )
        first = [hub.connect() for _ in range(3)]
        strange = hub.bus.clients = hub.bus.registry.by_fd = Strange(hub.bus.clients)
        hub.knock()
        turn_until(hub.loop, lambda: len(strange) == 4)
        hub.bus.registry.end(first[0].client)
        assert strange.walked == 0
        assert len(hub.bus.registry.by_pid) == len(strange) == 3
        assert [one.fd for one in hub.bus.registry.by_pid.of(1003)] == [max(strange)]


PLAIN = [frames.META_ON, frames.META_OFF, frames.BATCH_ON, frames.BATCH_OFF, frames.WHOAMI, frames.STATS, b"nosuch"]


def sends(chance: random.Random, peer: Peer) -> bytes:
    """A frame of some kind."""
    key = chance.choice([b"a", b"b/c", b"two words", b"!/x", b"!x", b"!/cred////x", b"!/tap/", b"!/tap/accepted", b""])
    return chance.choice(
        [
            frames.subscribe(key),
            frames.unsubscribe(key),
            frames.unsubscribe(chance.choice([*peer.hub.routes.patterns(peer.client.fd), b"a"])),
            frames.message(key, b"x" * chance.choice([0, 10, 1000, 20_000])),
            frames.request(frames.SOFT + chance.choice(SOFT_MODES)),
            frames.request(frames.HARD + chance.choice(HARD_MODES)),
            frames.request(frames.ORDER + chance.choice([b"queue", b"stack", b"random"])),
            frames.request(frames.ECHO + chance.choice([b"on", b"off"])),
            frames.request(frames.SYNC, b"x" * chance.randrange(2000)),
            frames.request(frames.TAG, chance.choice([b"", b"tag", b"bad tag"])),
            frames.request(chance.choice(PLAIN)),
            b"nonsense",
            b"",
        ]
    )


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_every_charge_is_what_is_kept_and_all_are_taken_back(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    limits = bus_limits(
        queue={"messages": 10},
        queue_bytes=30_000,
        max_subscriptions=30,
        patience=0.01,
        user={"clients": 4, "subscriptions": 50, "queue_bytes": 40_000, "rate": 0.0 if seed % 2 else 5000.0},
    )
    users: list[Who | None] = [None, ANN, BOB]
    gc.collect()  # what tests before this one have left open
    before = descriptors()
    with Hub(tmp_path, limits=limits, others=[("broker", admit_all)]) as hub:
        peers: list[Peer] = []
        for step in range(STEPS):
            peers = [peer for peer in peers if peer.client.open]
            what = chance.random()
            who = chance.choice(users)
            room = sum(client.peer.uid == (0 if who is None else who.uid) for client in hub.bus.clients.values()) < 4
            if room and (what < 0.1 or not peers):
                peers.append(hub.connect(who=who))
                peers[-1].client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY)
            elif not peers:
                hub.turn(1)
            elif what < 0.13:
                peers.pop(chance.randrange(len(peers))).close()
            elif what < 0.4:
                fds = tuple(peer.client.fd for peer in chance.sample(peers, chance.randint(1, len(peers))))
                hub.deliver(*[(fds, b"MSG a\0" + b"x" * chance.choice([1, 1000, 10_000]))] * chance.randint(1, 5))
            elif what < 0.55:
                chance.choice(peers).waiting()
            elif what < 0.57:
                hub.reload()
            else:
                peer = chance.choice(peers)
                for _ in range(chance.randint(1, 10)):
                    if not peer.client.open or not peer.client.watched & READABLE:
                        break
                    peer.send(sends(chance, peer))
            hub.turn(chance.randrange(3))
            every_charge_is_what_is_kept(hub)
            assert hub.bus.counters.ended["bug"] == 0, f"at step {step}"
        for peer in peers:
            peer.close()
        turn_until(hub.loop, lambda: not hub.bus.clients, "the end of all clients")
        nothing_is_left(hub)
    assert descriptors() == before
