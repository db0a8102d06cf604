"""Restoring a killed daemon: clients get what they would have got, once and in order."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.bus.clients.access import Access, Allowed, Rule
from bccnd.bus.clients.client import BusLimits
from bccnd.core.formats import client_log_format
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.sending.send_queue import ENTRY
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import bccn1, frames
from bccnd.handover import memfd
from bccnd.handover.memfd import WORTH, File
from bccnd.handover.stored_state import MAX_TRIES, Handover
from bccnd.native.memory import inflight_layout as layout
from tests.bus.leftovers import kept_without_gc
from tests.handover.successors import Killed, Site, Trap, broadcasts, drop, frames_of, nothing_left_open
from tests.limits import no_file_larger_than
from tests.rules import bus_limits
from tests.support import TINY, Peer, examples, gaps, messages, refusals, slow, turn_until

#: lines of the package at which a daemon is killed, in each scenario; 0 for every line
POINTS: Final = int(os.environ.get("BCCND_POINTS", str(examples(80))))
#: killed daemons leave sockets open
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

Shown = dict[str, Any]
#: attributes that are visible to a client
SEEN: Final = (
    *("identity", "base", "dialect", "since", "peer", "echo", "local", "soft", "hard", "blocked_packet", "lost"),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def shown(site: Site, peer: Peer, *, published: bool = True) -> Shown:
    """Return all visible state of a client, and what its user is charged for."""
    client = peer.client
    assert site.by_number(client.number) is client
    return {name: getattr(client, name) for name in SEEN} | {
        "patterns": dict(site.routes.patterns(client.fd)),
        "subscriptions": client.subscriptions,
        "meta": site.routes.wants_meta(client.fd),
        "batch": site.bus.fanout.in_batch(client),
        "box": (client.queue.order, list(client.queue), client.queue.bytes, client.queue.messages),
        "held": client.resume is not None,
        "published": client.published if published else None,
        "seq": site.egress.next_seq(client.identity),
        "charged": (client.account.clients, client.account.subscriptions, client.account.queue_bytes),
        "queued": client.fd in site.bus.queues.waiting,
        "blocks": client.fd in site.bus.queues.blockers,
    }


def name_of(peer: Peer) -> str:
    """Return the name under which a client is stored."""
    return f"client-{peer.client.number}"


def receive_payloads(peer: Peer, key: bytes, count: int) -> list[bytes]:
    """Receive ``count`` messages of one key, one by one; return their payloads."""
    packets = [peer.receive() for _ in range(count)]
    assert gaps(packets) == 0
    return messages(packets, key)


def fill(publisher: Peer) -> list[bytes]:
    """Publish more on ``a`` than the kernel keeps for a client that does not read; return the payloads."""
    payloads = [b"%d" % number * 100 for number in range(30)]
    publisher.publish(b"a", *payloads)
    publisher.hub.settle()
    return payloads


def block_publisher(site: Site) -> tuple[Peer, Peer]:
    """Return a client that does not read, and a publisher whose next packet waits for it."""
    reader, publisher = slow(site, b"a"), site.connect()
    reader.send(frames.request(b"blocking/hard/block"))
    site.settle()
    publisher.publish(b"a", *(b"%d" % number * 100 for number in range(60)))
    turn_until(site.loop, lambda: publisher.client.resume is not None)
    return reader, publisher


def test_client_state_is_restored(site: Site) -> None:
    one, other = site.connect(b"a/", b"a/", b"!/app/"), site.connect()
    one.send(
        *(frames.request(frames.TAG, b"door"), frames.request(frames.META_ON), frames.request(frames.BATCH_ON)),
        *(b"CMSG echo/off", b"CMSG blocking/soft/block", b"CMSG blocking/hard/error", b"CMSG order/stack"),
        *(frames.subscribe(b"!/cred////x"), frames.unsubscribe(b"a/"), frames.subscribe(b"b"), b"CMSG !/bccn/local/on"),
    )
    one.publish(b"b", b"1", b"2")
    other.send(frames.request(frames.TAG, b"window"), frames.request(frames.TAG, b""))
    site.settle()
    before = shown(site, one), shown(site, other)
    assert before[0]["patterns"][b"a/"] == 1
    assert len(before[0]["patterns"]) == 11
    assert (before[0]["meta"], before[0]["batch"], before[0]["echo"], before[0]["local"]) == (True, True, False, True)
    assert before[0]["identity"] == before[0]["base"] + b"/door"
    for end in (site.stop, site.kill, site.kill):
        if end == site.kill:  # its counters are logged at a clean end only
            site.bus.close()
        end()
        site.start()
        assert (shown(site, one), shown(site, other)) == before
        assert (site.handover.dropped, site.handover.clients) == ([], [])
    other.publish(b"a/x", b"later")
    assert frames_of(one.waiting() + one.all())[-1].endswith(b"|later")


@pytest.mark.parametrize("end", ["close", "half-close", "bug", "not stored"])
@pytest.mark.parametrize("state", ["plain", "listing", "queue", "block"])
def test_no_object_of_a_client_that_ended_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch, state: str, end: str
) -> None:
    monkeypatch.setattr("bccnd.bus.requests.control.PAGE", 1)

    def connect_and_end() -> None:
        for _ in range(10):
            peer, publisher = slow(site, b"a", b"x/", b">"), site.connect()
            peer.send(frames.request(frames.TAG, b"tag"), frames.request(frames.META_ON))
            if state == "listing":
                peer.send(frames.request(frames.STATS, b"clients"))
            elif state in ("queue", "block"):
                peer.send(frames.request(frames.SOFT + state.encode()))
                site.settle()
                publisher.publish(b"a", *[b"x" * 1000] * 10)
            site.settle()
            assert (publisher.client.resume is not None) == (state == "block")
            if end == "half-close":
                peer.sock.shutdown(socket.SHUT_WR)
                site.turn()
            for one in (publisher, peer):
                if end == "bug":
                    site.bus.registry.end(one.client, "bug", "a test")
                elif end == "not stored":
                    site.handover.forget(one.client)
                one.close()
            turn_until(site.loop, lambda: not site.bus.clients, "the end of both")
            site.turn()
            site._peers.clear()

    assert kept_without_gc(connect_and_end, 10) == {}


def test_client_of_another_pid_namespace_keeps_its_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the kernel returns for another namespace.
    monkeypatch.setattr("bccnd.net.peer.credentials", lambda _: (0, os.geteuid(), os.getegid()))
    one, other = site.connect(b"a"), site.connect(b"a")
    names = [one.client.base, other.client.base]
    assert names[0].endswith(b"/0/%d" % one.client.number)
    for _ in range(2):
        site.die()
        assert [one.client.base, other.client.base] == names
        one.publish(b"!" + names[1], b"x")
        assert (one.all(), other.all()) == ([], [b"MSG !%b\0x" % names[1]])


def test_connection_numbers_are_not_reused(site: Site) -> None:
    peers = [site.connect() for _ in range(4)]
    numbers = {one.client.number for one in peers}
    for one in peers[1:]:
        one.close()
    turn_until(site.loop, lambda: len(site.bus.clients) == 1)
    for _ in range(2):
        site.die()
        for _ in range(2):
            number = site.connect().client.number
            assert number not in numbers
            numbers.add(number)


def test_closed_client_is_not_stored_and_its_slot_is_reused(site: Site) -> None:
    peers = [site.connect(b"a") for _ in range(3)]
    slots = [one.client.state_log.slot for one in peers]
    assert slots == [0, 1, 2]
    names = set(site.store.kept)
    peers[1].close()
    turn_until(site.loop, lambda: len(site.bus.clients) == 2)
    assert names - set(site.store.kept) == {name_of(peers[1])}
    site.die()
    assert [one.client.state_log.slot for one in (peers[0], peers[2])] == [0, 2]
    new = site.connect(b"a")
    assert new.client.state_log.slot == 1
    site.die()
    new.publish(b"a", b"x")
    assert [one.all() for one in (peers[0], peers[2], new)] == [[b"MSG a\0x"]] * 3


def test_lowered_limits_disconnect_no_restored_client(site: Site) -> None:
    peers = [slow(site, b"a", b"b", b"c"), site.connect(b"a")]
    payloads = fill(peers[1])
    before = [shown(site, one, published=False) for one in peers]
    site.limits = bus_limits(
        queue={"messages": 1, "bytes": 1},
        user={"clients": 1, "subscriptions": 1, "queue_bytes": 1},
        max_clients=1,
        max_subscriptions=1,
        patience=0.1,
    )
    site.die()
    assert [shown(site, one, published=False) for one in peers] == before
    late = site.knock()
    assert refusals([late.receive()]) == [(b"too_many_clients", b"")]
    assert receive_payloads(peers[0], b"a", 30) == payloads


RULES: Final = [Rule(uid=os.geteuid(), publish=(b"",), subscribe=(b"a/",), tap=False, tag=False)]


def test_withdrawn_rights_are_reported_once_behind_the_queue(site: Site) -> None:
    one, sleeper = site.connect(b"a/", b"b", b"b", b"c", b"!/tap/"), slow(site, b"b", b"b")
    one.send(frames.request(frames.TAG, b"door"), frames.unsubscribe(b"c"))
    site.settle()
    one.publish(b"b", *(b"x" * 500 for _ in range(30)))
    site.settle()
    one.waiting()
    waited = len(sleeper.client.queue)
    assert waited
    charged = sleeper.client.account.queue_bytes + len(frames.error("not_permitted", b"b")) + ENTRY
    site.rules = tuple(RULES)
    for _ in range(2):
        site.die()
        assert site.routes.patterns(one.client.fd) == {b"a/": 1}
        assert (one.client.identity, one.client.subscriptions) == (one.client.base, 1)
        assert site.routes.patterns(sleeper.client.fd) == {}
        assert one.client.account.queue_bytes == charged
        assert list(sleeper.client.queue)[:waited] == [b"MSG b\0" + b"x" * 500] * waited
    assert sorted(refusals(one.all())) == [
        (b"not_permitted", b"!/bccn/tag"),
        (b"not_permitted", b"!/tap/"),
        (b"not_permitted", b"b"),
    ]
    got = sleeper.all()
    assert got[:30] == [b"MSG b\0" + b"x" * 500] * 30
    assert refusals(got[30:]) == [(b"not_permitted", b"b")]
    site.die()
    assert one.all() == sleeper.all() == []
    assert site.bus.quota.account(os.geteuid()).subscriptions == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("subscribed", [False, True])
def test_client_that_closed_meanwhile_is_read_to_the_end(site: Site, subscribed: bool) -> None:
    leaver, other = site.connect(*[b"a"] * subscribed), site.connect(b"a")
    site.kill()
    leaver.sock.send(frames.message(b"a", b"last words"))
    leaver.sock.send(b"")
    leaver.sock.send(frames.message(b"a", b"really"))
    leaver.close()
    site.start()
    assert messages(other.all(), b"a") == [b"last words", b"really"]
    turn_until(site.loop, lambda: len(site.bus.clients) == 1)
    assert set(site.store.kept) >= {name_of(other)}
    assert name_of(leaver) not in site.store.kept


def test_half_closed_client_still_receives(site: Site) -> None:
    half, other = site.connect(b"a"), site.connect()
    site.kill()
    half.sock.send(frames.message(b"b", b"x"))
    half.sock.shutdown(socket.SHUT_WR)
    site.start()
    for number in range(2):
        other.publish(b"a", b"%d" % number)
        site.settle()
        assert half.waiting() == [b"MSG a\0%d" % number]
        site.die()


def test_clean_stop_leaves_unread_packets_to_the_successor(tmp_path: Path) -> None:
    """What was not read from clients stays in their sockets."""
    with Site(tmp_path, limits=bus_limits(queue={"messages": 5})) as site:
        reader, _ = block_publisher(site)
        site.stop()
        site.start()
        assert reader.client.lost == 0
        assert receive_payloads(reader, b"a", 60) == [b"%d" % number * 100 for number in range(60)]
        assert reader.all() == []


def append(site: Site, peer: Peer, *records: bytes) -> None:
    """Append records to a client's log."""
    file = File(os.dup(site.store.file(name_of(peer))))
    for record in records:
        file.append(record)
    file.close()


Damage = Callable[[Site, Peer], None]


def with_log(content: bytes) -> Damage:
    def damage(site: Site, peer: Peer) -> None:
        fd = site.store.file(name_of(peer))
        os.ftruncate(fd, 0)
        os.pwrite(fd, content, 0)

    return damage


def without(is_lost: Callable[[int], bool]) -> Damage:
    def damage(site: Site, peer: Peer) -> None:
        kept = site.store.kept[name_of(peer)]
        (lost,) = [fd for fd in kept if is_lost(os.fstat(fd).st_mode)]
        kept.remove(lost)
        os.close(lost)

    return damage


def with_a_third_descriptor(site: Site, peer: Peer) -> None:
    site.store.put(name_of(peer), memfd.create("x"))


def with_a_pipe_as_log(site: Site, peer: Peer) -> None:
    reading, writing = os.pipe()
    os.dup2(reading, site.store.file(name_of(peer)))
    os.close(reading)
    os.close(writing)


def with_another_socket(site: Site, peer: Peer) -> None:
    (fd,) = set(site.store.kept[name_of(peer)]) - {site.store.file(name_of(peer))}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as strange:
        os.dup2(strange.fileno(), fd)


HEADER: Final = b"bccntap1" + (16).to_bytes(8, "little")


@pytest.mark.parametrize(
    "damage",
    [
        *map(with_log, [b"", b"nonsense" * 10, b"bccntap2" + bytes(100), HEADER]),
        with_log(HEADER + client_log_format.pack_record(client_log_format.HEAD, b'{"version": "none"}')),
        with_log(HEADER + client_log_format.pack_head()),
        with_log(HEADER + client_log_format.pack_head(program="x", started=1, dialect="klingon", since=1.0)),
        with_log(HEADER + client_log_format.pack_head(program="\u00fc", started=[], dialect=3, since=None)),
        # More than the queue holds.
        lambda site, peer: append(site, peer, client_log_format.pack_record(client_log_format.SENT, number=3)),
        *(without(stat.S_ISSOCK), without(stat.S_ISREG)),
        *(with_a_third_descriptor, with_a_pipe_as_log, with_another_socket),
    ],
)
def test_damaged_client_is_dropped_alone(site: Site, damage: Damage) -> None:
    one, other = site.connect(b"a"), site.connect(b"a")
    site.kill()
    damage(site, one)
    site.start()
    (reported,) = site.handover.dropped
    assert f"connection {one.client.number}" in reported
    assert one.ended()
    assert name_of(one) not in site.store.kept
    other.publish(b"a", b"x")
    assert other.all() == [b"MSG a\0x"]
    account = site.bus.quota.account(os.geteuid())
    assert account is not None
    assert (account.clients, account.subscriptions, account.queue_bytes) == (1, 1, 0)
    site.die()
    assert site.handover.dropped == []
    assert [client.number for client in site.bus.clients.values()] == [other.client.number]


def test_descriptors_of_unknown_names_are_dropped_and_reported(site: Site) -> None:
    site.kill()
    for name in ("unknown-name", "client-"):
        site.store.put(name, memfd.create(name))
    site.start()
    assert len(site.handover.dropped) == 2
    assert not any(name.startswith(("client-", "unknown")) for name in site.store.kept)


def in_another_version(site: Site, peer: Peer, *lacking: str) -> None:
    """Change a client's log into one of version 99, without these fields of its head."""
    file = File(os.dup(site.store.file(name_of(peer))))
    image = client_log_format.read_image(file.read())
    head = {name: value for name, value in image.head.items() if name not in lacking} | {"version": 99}
    records = [client_log_format.pack_record(client_log_format.HEAD, json.dumps(head).encode())]
    records += [client_log_format.pack_record(one.kind, one.body, one.number, one.serial) for one in image.records]
    file.replace(b"".join(records))
    file.close()


@pytest.mark.parametrize("is_ours", [True, False])
def test_log_is_read_as_far_as_it_is_understood(site: Site, is_ours: bool) -> None:
    one = slow(site, b"a", b"b")
    one.send(frames.request(frames.TAG, b"door"), b"CMSG echo/off")
    payloads = fill(site.connect())
    assert one.client.queue
    before = shown(site, one)
    site.kill()
    if not is_ours:
        in_another_version(site, one)
    append(
        *(site, one, client_log_format.pack_record(200, b"x")),
        client_log_format.pack_record(client_log_format.REQUESTED, frames.request(b"future/mode")),
    )
    site.start()
    *version, number, mode = site.handover.dropped
    assert ["99" in one for one in version] == [True] * (not is_ours)
    assert ("200" in number, "future/mode" in mode) == (True, True)
    assert shown(site, one) == before
    assert receive_payloads(one, b"a", 30) == payloads
    site.die()
    assert site.handover.dropped == []
    assert shown(site, one)["identity"] == before["identity"]


def test_connection_stays_whatever_the_log_of_another_version_lacks(site: Site) -> None:
    one = site.connect(b"a")
    identity = one.client.identity
    site.kill()
    in_another_version(site, one, "program", "started", "dialect", "since", "slot")
    # The entry that was sent is of a kind that this version does not know.
    append(
        *(site, one, client_log_format.pack_record(client_log_format.SENT, number=3)),
        client_log_format.pack_record(client_log_format.SUBSCRIBED, b"b", 1),
    )
    site.start()
    assert len(site.handover.dropped) == 2
    assert one.client.identity == identity
    one.publish(b"a", b"x")
    one.publish(b"b", b"y")
    assert one.all() == [b"MSG a\0x", b"MSG b\0y"]
    site.die()
    assert site.handover.dropped == []
    one.publish(b"a", b"z")
    assert one.all() == [b"MSG a\0z"]


@pytest.mark.parametrize("magic", [b"bccnled0", bytes(8), b""])
def test_invalid_inflight_state_is_dropped_and_clients_stay(site: Site, magic: bytes) -> None:
    one, other = site.connect(b"a"), slow(site, b"a")
    payloads = fill(one)
    site.handover.inflight.memory[: len(magic)] = magic
    site.kill()
    if not magic:
        site.store.forget("ledger")
        site.store.put("ledger", memfd.create("ledger"))
    site.start()
    assert len(site.handover.dropped) == 1
    assert "input being processed" in site.handover.dropped[0]
    assert len(site.store.kept["ledger"]) == 1
    for _ in range(2):
        one.publish(b"a", b"more")
        site.settle()
        site.die()
        assert site.handover.dropped == []
    assert messages(other.all(), b"a") == messages(one.all(), b"a") == [*payloads, b"more", b"more"]


@pytest.mark.parametrize("cause", ["systemd", "slots"])
def test_client_that_cannot_be_stored_is_served_and_counted(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    kept = site.connect(b"a")
    with monkeypatch.context() as patch:
        if cause == "systemd":
            patch.setattr(site.store, "full", True)
        else:
            patch.setattr(site.handover, "_next_slot", layout.MAX_SLOTS)
        not_stored = [site.connect(b"a") for _ in range(3)]
        assert site.handover.not_stored == 3
        assert sum("survive a restart" in message for message in caplog.messages) == 1
        sleeper = slow(site, b"a")
        payloads = fill(kept)
    for one in (kept, *not_stored, sleeper):
        assert messages(one.all(), b"a") == payloads
    assert [name for name in site.store.kept if name.startswith("client-")] == [name_of(kept)]
    late = site.connect(b"a")
    assert late.client.state_log.slot == 1
    site.die()
    assert len(site.bus.clients) == 2
    assert all(one.ended() for one in not_stored)
    late.publish(b"a", b"x")
    assert messages(kept.all(), b"a") == messages(late.all(), b"a") == [b"x"]


def test_clients_are_stored_only_with_the_state_of_the_input(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        site.kill()
        site.store.close()
        site.store.refused = "ledger"
        site.start()
        first = site.connect(b"a")
        assert site.handover.not_stored == 1
        site.store.refused = ""
        second = site.connect(b"a")
        site.die()
        assert first.ended()
        assert [one.number for one in site.bus.clients.values()] == [second.client.number]
        assert site.handover.dropped == []
        second.publish(b"a", b"x")
        assert second.all() == [b"MSG a\0x"]


def test_client_without_memory_is_served_and_counted(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    one, other = slow(site, b"a"), site.connect(b"a")
    payloads = [b"%d" % number * 300 for number in range(60)]
    with no_file_larger_than(20_000):
        other.publish(b"a", *payloads)
        site.settle()
        assert site.handover.not_stored == 1
        assert name_of(one) not in site.store.kept
        third = site.connect(b"b")
        assert third.client.state_log.slot == 0
    assert messages(one.all(), b"a") == messages(other.all(), b"a") == payloads
    assert sum("survive a restart" in message for message in caplog.messages) == 1
    site.die()
    assert one.ended()
    assert {client.number for client in site.bus.clients.values()} == {other.client.number, third.client.number}


@dataclass
class Cast:
    """A client of a scenario: its first packets, and whether it reads only at the step ``read``."""

    packets: tuple[bytes, ...] = ()
    slow: bool = False


@dataclass
class Scenario:
    """Clients, and steps: packets of a client by number, reads (``read``), or datagrams (``net``)."""

    cast: list[Cast]
    steps: list[tuple[Any, ...]]
    limits: BusLimits = field(default_factory=bus_limits)


def sub(*patterns: bytes) -> tuple[bytes, ...]:
    return tuple(map(frames.subscribe, patterns))


def controls(*keys: bytes) -> tuple[bytes, ...]:
    return tuple(map(frames.request, keys))


class Run:
    """A run of a scenario, in which a daemon may be killed once or twice."""

    def __init__(self, site: Site, scenario: Scenario) -> None:
        self.site = site
        self.scenario = scenario
        self.peers: list[Peer] = []
        self.got: list[list[bytes]] = []
        for one in scenario.cast:
            peer = site.connect()
            if one.slow:
                peer.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY)
            peer.send(*one.packets)
            site.settle()
            self.peers.append(peer)
            self.got.append(peer.waiting())

    def play(self, trap: Trap, second: Trap | None = None) -> bool:
        """Run all steps; return whether a daemon was killed."""
        killed = False
        for step in self.scenario.steps:
            try:
                with trap.armed():
                    self._do(step)
                    self.site.settle()
            except Killed:
                killed = True
                self.site.kill()
                try:
                    self.site.start(second)
                except Killed:
                    self.site.kill()
                    self.site.start()
                self.site.settle()
            for number, one in enumerate(self.scenario.cast):
                if not one.slow:
                    self._read(number)
        quiet = 0
        while quiet < 3:
            self.site.settle()
            new = [self._read(number) for number in range(len(self.peers))]
            quiet = 0 if any(new) else quiet + 1
        return killed

    def _read(self, number: int) -> bool:
        before = len(self.got[number])
        with suppress(ConnectionResetError):
            self.got[number] += self.peers[number].waiting()
        return len(self.got[number]) > before

    def _do(self, step: tuple[Any, ...]) -> None:
        what, *rest = step
        if what == "net":
            self.site.broadcast(*rest)
        elif what == "read":
            for number in rest:
                self._read(number)
        else:
            with suppress(BrokenPipeError, ConnectionResetError):  # a client in mode error was ended
                for packet in rest:
                    self.peers[what].sock.send(packet)

    def account(self) -> tuple[Any, ...]:
        """Return what must not depend on kills."""
        states: list[Shown | None] = []
        for peer in self.peers:
            if self.site.by_number(peer.client.number) is None:
                states.append(None)
            else:
                state = shown(self.site, peer, published=False)
                del state["since"], state["seq"]
                states.append(state)
        return [frames_of(got) for got in self.got], broadcasts(self.site.sent), states


def play(scenario: Scenario, trap: Trap, second: Trap | None = None) -> tuple[bool, tuple[Any, ...]]:
    """Run a scenario; return whether a daemon was killed, and the visible results."""
    with nothing_left_open():
        return _play(scenario, trap, second)


def _play(scenario: Scenario, trap: Trap, second: Trap | None) -> tuple[bool, tuple[Any, ...]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Site(Path(folder), limits=scenario.limits, segment=True) as site,
    ):
        run = Run(site, scenario)
        killed = run.play(trap, second)
        return killed, run.account()


def remote(seq: int, chan: bytes, payload: bytes, src: bytes = b"far/prog/1") -> bytes:
    body = bccn1.build_body(src, seq, chan, payload)
    return bccn1.build(body, IntegrityChecker().sign(body))


FOUR: Final = [
    Cast(sub(b"a/")),
    Cast(sub(b"a/", b"b")),
    Cast((*sub(b"a/"), *controls(frames.META_ON))),
    Cast((*sub(b"a/", b"b"), *controls(frames.BATCH_ON))),
]
TWO_SLOW: Final = [Cast(sub(b"a/"), slow=True), Cast((*sub(b"a/", b"b"), *controls(frames.BATCH_ON)), slow=True)]
BIG: Final = [frames.message(b"a/big", b"%d" % number * 150) for number in range(24)]

SCENARIOS: Final = {
    "published": Scenario(
        [*FOUR, Cast(controls(b"echo/off"))],
        [
            (0, frames.message(b"a/x", b"1")),
            (0, frames.message(b"a/x", b"2"), frames.message(b"b", b"3"), frames.message(b"!", b"all")),
            (4, frames.message(b"a/y", b"4")),
            (4, frames.message(b"no channel", b"5"), frames.message(b"a/long", b"x" * 2000)),
            (0, frames.message(b"!relay01/*", b"6")),
        ],
    ),
    "requested": Scenario(
        [*FOUR, Cast()],
        [
            (4, *sub(b"a/", b"a/", b"c"), frames.unsubscribe(b"a/"), frames.unsubscribe(b"nosuch")),
            (4, frames.request(frames.WHOAMI), frames.request(frames.SYNC, b"s"), frames.request(b"nosuch")),
            (4, frames.request(frames.TAG, b"t"), frames.request(frames.WHOAMI), frames.message(b"a/t", b"1")),
            (4, frames.request(frames.TAG, b"bad tag"), b"", b"nonsense", frames.request(frames.TAG, b"")),
            (4, *controls(frames.META_ON, b"echo/off", frames.BATCH_ON, b"blocking/soft/discard", b"order/stack")),
            (0, frames.message(b"a/x", b"2"), *controls(frames.LOCAL_ON), frames.message(b"a/x", b"stays here")),
            (0, frames.message(b"a/y", b"too"), *controls(frames.LOCAL_OFF), frames.message(b"a/x", b"goes out")),
            (4, *controls(frames.BATCH_OFF, frames.META_OFF), frames.message(b"a/t", b"3"), *controls(frames.WHOAMI)),
            (4, *sub(b"!/cred////x"), frames.message(b"!/cred////x", b"4"), frames.request(frames.CRED_WHOAMI)),
        ],
    ),
    "queued": Scenario(
        [*FOUR, *TWO_SLOW],
        [
            (0, *BIG[:8]),
            (0, *BIG[8:20]),
            (4, frames.request(frames.WHOAMI)),
            ("read", 4, 5),
            (0, *BIG[20:]),
            ("read", 5),
            (5, *controls(frames.BATCH_OFF)),
            ("read", 4),
        ],
    ),
    "blocked": Scenario(
        [
            Cast(sub(b"b")),
            Cast((*sub(b"a/"), *controls(b"blocking/soft/block")), slow=True),
            Cast(sub(b"a/")),
            Cast((*sub(b"a/"), *controls(frames.BATCH_ON))),
            Cast((*sub(b"a/"), *controls(b"blocking/hard/block")), slow=True),
        ],
        [
            (0, *BIG[:12]),
            (0, *BIG[12:16]),
            ("read", 1),
            (2, frames.message(b"b", b"between")),
            ("read", 1, 4),
            ("read", 1, 4),
            ("read", 1),
        ],
        bus_limits(queue={"messages": 6}),
    ),
    "received": Scenario(
        [*FOUR, *TWO_SLOW],
        [
            ("net", remote(1, b"a/x", b"1")),
            ("net", *(remote(number, b"a/x", b"%d" % number * 300) for number in range(2, 14))),
            ("net", *[remote(14, b"b", b"14")] * 2, remote(16, b"!", b"16"), b"garbage", b""),
            ("read", 4),
            ("net", remote(17, b"a/y", b"17"), remote(5, b"a/x", b"5", b"another"), remote(18, b"a/y", b"18")),
            (0, frames.message(b"a/x", b"ours")),
            ("net", remote(18, b"a/y", b"18"), remote(19, b"a/y", b"19")),
        ],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_message_arrives_once_wherever_a_daemon_is_killed(name: str) -> None:
    chance, count = random.Random(0), Trap()
    # The first run does more: it loads modules and logs what is logged once.
    _, expected = play(SCENARIOS[name], Trap())
    assert expected == play(SCENARIOS[name], count)[1], "it is not the same each time"
    lines = range(1, count.lines + 1)
    for at in lines if not POINTS else sorted(chance.sample(lines, min(POINTS, len(lines)))):
        second = chance.choice([0, 0, chance.randint(1, 1500)])
        killed, found = play(SCENARIOS[name], Trap(at), Trap(second) if second else None)
        assert killed, (at, count.lines)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == theirs, (at, second)


def unsend(site: Site, peers: list[Peer], reached: int, *, armed: bool) -> list[list[bytes]]:
    """Change the state so that only the first ``reached`` clients got this input; with ``armed`` the kernel has sent to
    one more."""
    memory = site.handover.inflight.memory
    got = []
    for number, peer in enumerate(peers):
        packets = peer.waiting()
        its = layout.read_slot(memory, peer.client.state_log.slot)
        assert its.serial == layout.read_number(memory, layout.AT_SERIAL)
        assert its.got == len(packets)
        if number >= reached:
            layout.write_slot(memory, peer.client.state_log.slot, its._replace(serial=its.serial - 1, got=77))
        if number == reached and armed:
            words = peer.client.state_log.slot + 1, 1, 0, 0, len(packets), 0
            struct.pack_into("=6Q", memory, layout.AT_SENDING, *words)
            for at in range(len(packets)):
                struct.pack_into("=I", memory, layout.header_at(at) + layout.DONE, len(packets[at]))
        got.append(packets if number < reached + armed else [])
    return got


@pytest.mark.parametrize("armed", [False, True])
@pytest.mark.parametrize("reached", range(4))
@pytest.mark.parametrize("is_packet", [True, False])
def test_remaining_receivers_get_an_unfinished_input(
    tmp_path: Path, is_packet: bool, reached: int, armed: bool
) -> None:
    with Site(tmp_path, segment=True) as site:
        peers = [site.connect(b"a/") for _ in range(4)]
        publisher, segment = peers[0], site.segment
        site.broadcast(remote(1, b"a/x", b"1"))
        assert [one.all() for one in peers] == [[b"MSG a/x\0001"]] * 4
        if is_packet:
            publisher.sock.send(frames.message(b"a/x", b"halfway"))
            size = site.bus.reader.receiver.receive(publisher.client.fd, publisher.client.number)
            site.bus.reader.process(publisher.client, site.bus.reader.receiver.packet(size))
            expected = [b"halfway"]
        else:
            site.broadcast(*(remote(seq, b"a/x", b"%d" % seq) for seq in (2, 3, 3, 5, 1, 6)))
            datagrams, deliveries, now = segment.receiver.receive(), Deliveries(), time.monotonic()
            assert len(datagrams) == 6
            site.handover.inflight.set_time(now)
            site.ingress.feed(deliveries, site.counters, datagrams, segment.peers, now, time.time_ns())
            site.bus.fanout.deliver(deliveries)
            expected = [b"2", b"3", b"5", b"6"]
        got = unsend(site, peers, reached, armed=armed)
        site.kill()
        for _ in range(2):  # these daemons end before they process anything
            drop(Handover(site.store, site.store.passed(), lambda _: None))
        site.start()
        site.die()
        site.broadcast(*(remote(seq, b"a/x", b"%d" % seq) for seq in (1, 7)))
        site.settle()
        publisher.publish(b"a/x", b"behind")
        for before, one in zip(got, peers, strict=True):
            assert messages(before + one.all(), b"a/x") == [*expected, b"7", b"behind"]
        assert len(broadcasts(site.sent)) == 1 + is_packet


def test_empty_packet_is_answered_once_and_the_end_is_none(site: Site) -> None:
    one, half = site.connect(), site.connect(b"a")
    one.sock.send(b"")
    half.sock.shutdown(socket.SHUT_WR)
    for peer in (one, half):
        assert site.bus.reader.receiver.receive(peer.client.fd, peer.client.number) == 0
        site.die()
    one.sock.send(b"")
    assert site.bus.reader.receiver.receive(one.client.fd, one.client.number) == 0
    site.bus.reader.process(one.client, b"")
    site.die()
    assert refusals(one.all()) == [(b"empty", b"")] * 2
    one.publish(b"a", b"x")
    assert one.all() == []
    assert half.waiting() == [b"MSG a\0x"]


def drop_reported(site: Site) -> str:
    """Return what is reported of an input once it has killed enough daemons."""
    deaths = 0
    while deaths <= MAX_TRIES:
        site.kill()
        try:
            site.start()
            site.settle()
        except Killed:
            deaths += 1
        else:
            break
    assert deaths == MAX_TRIES
    (reported,) = site.handover.dropped
    return reported


class Poison:
    """Raises an error for each message that a client to come is about to publish on ``poison``, and counts them."""

    def __init__(self) -> None:
        self.error: type[BaseException] = Killed
        self.count = 0

    def permits(self, key: bytes) -> bool:
        if key == b"poison":
            self.count += 1
            raise self.error
        return True


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    one, rights = Poison(), Access.rights
    monkeypatch.setattr(Access, "rights", lambda *args: replace(rights(*args), publish=cast("Allowed", one)))
    return one


@pytest.mark.parametrize("rate", [0.0, 10.0], ids=["read", "waiting"])
def test_packet_that_kills_daemons_is_dropped(tmp_path: Path, poison: Poison, rate: float) -> None:
    with Site(tmp_path, limits=bus_limits(user={"rate": rate})) as site:
        one, other = site.connect(b"a"), site.connect(b"a")
        one.publish(b"a", *(b"%d" % number for number in range(10)))
        one.publish(b"poison", b"x")
        one.publish(b"a", b"behind")
        with pytest.raises(Killed):
            turn_until(site.loop, lambda: False)
        assert ("12 bytes" in drop_reported(site)) == (not rate)
        assert poison.count == MAX_TRIES + 1
        assert (one.client.blocked_packet, one.client.resume) == (None, None)
        turn_until(site.loop, lambda: len(site.sent) == 11)
        expected = [b"MSG a\0%d" % number for number in range(10)] + [b"MSG a\0behind"]
        assert other.all() == one.all() == expected
        site.die()
        assert site.handover.dropped == []


def test_restored_publishers_wait_for_the_rate_of_their_user_together(tmp_path: Path) -> None:
    with Site(tmp_path, limits=bus_limits(user={"rate": 0.01})) as site:
        one, publishers = site.connect(b"a"), [site.connect() for _ in range(4)]
        for number, publisher in enumerate(publishers):
            publisher.publish(b"a", b"%d" % number)
            site.settle()
        assert site.bus.counters.published == 1
        site.die()
        site.settle()
        account = one.client.account
        # The next daemon knows nothing of what the user has published: one message more may come at once.
        assert site.bus.counters.published == 2
        assert list(account.waiting) == [publisher.client for publisher in publishers[2:]]
        for _ in range(2):
            account.stamp -= 100.0
            for timer in site.loop._timers:
                timer.when -= 100.0
            site.settle()
        assert receive_payloads(one, b"a", 4) == [b"0", b"1", b"2", b"3"]
        assert not account.waiting


@pytest.mark.parametrize("was_broadcast", [True, False])
def test_a_message_that_was_broadcast_does_not_wait_again(tmp_path: Path, was_broadcast: bool) -> None:
    with Site(tmp_path, limits=bus_limits(queue={"messages": 5})) as site:
        _, publisher = block_publisher(site)
        publisher.client.state_log.retried()
        site.was_broadcast = was_broadcast
        site.die()
        assert (publisher.client.blocked_packet is None) == was_broadcast


def test_datagrams_that_kill_daemons_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Site(tmp_path, segment=True) as site:
        one = site.connect(b"a/")
        site.broadcast(remote(1, b"a/x", b"1"), remote(2, b"a/x", b"2"))
        assert len(site.segment.receiver.receive()) == 2
        with monkeypatch.context() as patch:
            feed = Mock(side_effect=Killed)
            patch.setattr(Site, "_replay_datagrams", feed)
            assert "2 datagrams" in drop_reported(site)
            assert feed.call_count == MAX_TRIES
        site.broadcast(remote(3, b"a/x", b"3"))
        assert messages(one.all(), b"a/x") == [b"3"]


def test_starts_that_are_refused_drop_no_input(tmp_path: Path) -> None:
    with Site(tmp_path, segment=True) as site:
        one = site.connect(b"a/")
        site.broadcast(remote(1, b"a/x", b"1"))
        assert len(site.segment.receiver.receive()) == 1
        site.kill()
        for _ in range(2 * MAX_TRIES):
            # It has read what is stored when it finds that an interface is missing, for instance.
            drop(Handover(site.store, site.store.passed(), lambda _call: None))
        site.start()
        assert site.handover.dropped == []
        assert messages(one.all(), b"a/x") == [b"1"]


def test_replayed_input_that_meets_a_bug_is_dropped_at_once(site: Site, poison: Poison) -> None:
    one, other = site.connect(b"a"), site.connect(b"a")
    one.publish(b"poison", b"x")
    one.publish(b"a", b"behind")
    with pytest.raises(Killed):
        site.settle()
    poison.error = AssertionError
    site.die()
    assert "because of a bug" in site.handover.dropped[0]
    assert layout.read_unfinished(site.handover.inflight.memory) is None
    assert other.all() == one.all() == [b"MSG a\0behind"]


def test_input_that_met_a_bug_is_not_replayed(site: Site, poison: Poison) -> None:
    poison.error = RuntimeError
    one, other = site.connect(b"a"), site.connect(b"a")
    one.publish(b"poison", b"x")
    turn_until(site.loop, lambda: len(site.bus.clients) == 1)
    assert layout.read_unfinished(site.handover.inflight.memory) is None
    site.die()
    assert (len(site.bus.clients), poison.count, other.all()) == (1, 1, [])


def test_messages_of_the_daemon_are_no_part_of_an_input(site: Site) -> None:
    """Otherwise they would be counted as messages of the input."""
    one = site.connect(b"!/bccn/liveness/", b"a", b"heartbeat")
    one.send(*controls(frames.BATCH_ON))
    site.settle()
    site.bus.announce(b"!/bccn/liveness/x", b"alive")
    assert frames_of(one.waiting()) == [b"MSG !/bccn/liveness/x\0alive"]
    site.egress.open(b"relay01/bccnd/1")
    site.bus.publish(b"relay01/bccnd/1", b"heartbeat", b"", frames.message(b"heartbeat", b""))
    assert frames_of(one.waiting()) == [b"MSG heartbeat\0"]


def test_sends_to_a_former_client_are_not_counted_for_a_new_one(site: Site) -> None:
    leaver, publisher = slow(site, b"a"), site.connect()
    publisher.publish(b"a", *(b"x" * 500 for _ in range(20)))
    site.settle()
    receive_payloads(leaver, b"a", 20)
    site.settle()
    armed = layout.read_sending(site.handover.inflight.memory)
    assert armed is not None
    assert (armed.slot, armed.taken) == (leaver.client.state_log.slot, 1)
    leaver.close()
    turn_until(site.loop, lambda: len(site.bus.clients) == 1)
    assert layout.read_sending(site.handover.inflight.memory) is None


def test_grown_client_log_is_replaced_with_equal_contents(site: Site) -> None:
    one, publisher = slow(site, b"a", b"b"), site.connect()
    for number in range(60):
        publisher.publish(b"a", *(b"%d" % number * 2000 for _ in range(8)))
        assert len(receive_payloads(one, b"a", 8)) == 8
    publisher.publish(b"a", *(b"%d" % number * 500 for number in range(30)))
    site.settle()
    file = os.fstat(site.store.file(name_of(one)))
    assert file.st_size > 3 * WORTH
    assert file.st_blocks * 512 < 2 * WORTH
    before = shown(site, one)
    site.die()
    assert shown(site, one, published=False) == {**before, "published": None}
    assert receive_payloads(one, b"a", 30) == [b"%d" % number * 500 for number in range(30)]


SIX: Final = [*FOUR, *TWO_SLOW]
_PACKETS: Final = [
    *(frames.message(b"a/x", b"1"), frames.message(b"b", b"2"), frames.message(b"a/x", b"3" * 400), *BIG[:6]),
    *(frames.message(b"!", b"4"), frames.message(b"!relay01/*", b"5"), frames.message(b"no channel", b"6")),
    *(frames.message(b"a/long", b"x" * 3000), frames.message(b"!/app/x", b"7"), b"", b"nonsense"),
    *sub(b"a/", b"b", b"c", b"", b"!/app/"),
    *(frames.unsubscribe(b"a/"), frames.unsubscribe(b"b"), frames.unsubscribe(b"c")),
    *controls(frames.WHOAMI, frames.META_ON, frames.META_OFF, frames.BATCH_ON, frames.BATCH_OFF),
    *(frames.request(frames.TAG, b"t"), frames.request(frames.TAG, b""), frames.request(frames.SYNC, b"s")),
    *controls(b"echo/off", b"echo/on", b"order/stack", b"order/random", b"order/queue"),
    *controls(b"blocking/soft/discard", b"blocking/soft/queue", b"blocking/hard/error", b"blocking/hard/discard"),
    *controls(b"blocking/soft/error", b"blocking/soft/block", b"blocking/hard/block"),
]
_STEP: Final = st.one_of(
    st.tuples(st.integers(0, 5), st.lists(st.sampled_from(_PACKETS), min_size=1, max_size=4)),
    st.tuples(st.just(0), st.lists(st.sampled_from(BIG), min_size=1, max_size=8)),
    st.tuples(st.just("read"), st.lists(st.sampled_from([4, 5]), min_size=1, max_size=1)),
    st.tuples(st.just("net"), st.lists(st.integers(1, 8), min_size=1, max_size=5)),
)


@settings(max_examples=examples(120))
@given(st.lists(_STEP, min_size=1, max_size=12), st.floats(0, 1, exclude_max=True), st.floats(0, 3))
def test_no_kill_is_visible_to_clients(drawn: list[tuple[Any, list[Any]]], at: float, second: float) -> None:
    steps: list[tuple[Any, ...]] = []
    for what, arguments in drawn:
        if what == "net":
            arguments = [remote(seq, b"a/x" if seq % 3 else b"b", b"%d" % seq * 50) for seq in arguments]
        steps.append((what, *arguments))
    scenario, count = Scenario(SIX, steps, bus_limits(queue={"messages": 8})), Trap()
    _, expected = play(scenario, count)
    _, found = play(scenario, Trap(1 + int(at * count.lines)), Trap(1 + int(1500 * second)) if second < 1 else None)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs
