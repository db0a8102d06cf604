"""State that a killed daemon of version 1.0.0 has left: `tests/golden/version_1_0/README.md` says how it was made."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bccnd.core.tracking.liveness import Death
from bccnd.handover import earlier_version
from bccnd.native.memory.private_memory import private_memory
from tests.core.tracker_hosts import Host
from tests.core.world import datagram
from tests.handover.successors import Site, frames_of
from tests.rules import dedup_rules, heartbeat_rules
from tests.support import ROOT, messages

STATE: Final = ROOT / "tests/golden/version_1_0/state"
MOMENT: Final = json.loads((STATE / "moment.json").read_text())
#: the time at which the daemon was killed (monotonic)
KILLED: Final[float] = MOMENT["monotonic"]
#: numbers of ``far/app/1`` in the input that the daemon was processing, and which of them each client had received
UNFINISHED: Final[list[int]] = MOMENT["unfinished"]
RECEIVED: Final[dict[str, list[int]]] = MOMENT["received"]
CLIENTS: Final = range(1, 9)


def stored_file(name: str) -> int:
    fd = os.memfd_create(name)
    os.write(fd, (STATE / name).read_bytes())
    return fd


def stored_ledger() -> int:
    """Return the ledger: its size (8 bytes), and its pages that are not empty, each behind its offset (8 bytes)."""
    data = gzip.decompress((STATE / "ledger.pages.gz").read_bytes())
    fd = os.memfd_create("ledger")
    os.ftruncate(fd, struct.unpack_from("<Q", data)[0])
    for at in range(8, len(data), 8 + 4096):
        os.pwrite(fd, data[at + 8 : at + 8 + 4096], struct.unpack_from("<Q", data, at)[0])
    return fd


class Successor(Site):
    """A bus of this version with the state of 1.0.0; ``programs`` are the other ends of its connections, by number."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kill()
        self.store.close()
        self.programs: dict[int, socket.socket] = {}
        for number in CLIENTS:
            connection, program = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            program.setblocking(False)
            self.programs[number] = program
            self.store.put(f"client-{number}", connection.detach(), stored_file(f"client-{number}"))
        self.store.put("sources-1", stored_file("sources-1"))
        self.store.put("ledger", stored_ledger())
        self.start()
        self.settle()

    def received(self, number: int) -> list[bytes]:
        """Return the packets that a client has received since the last call."""
        packets = []
        while True:
            try:
                packets.append(self.programs[number].recv(1 << 16))
            except BlockingIOError:
                return packets

    def close(self) -> None:
        super().close()
        for program in self.programs.values():
            program.close()


@pytest.fixture
def successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Successor]:
    clock, began = time.monotonic, time.monotonic()
    # The times in the logs are of another machine, which may have run for longer than this one.
    monkeypatch.setattr(time, "monotonic", lambda: KILLED + clock() - began)
    with Successor(tmp_path) as one:
        assert isinstance(one, Successor)
        yield one


def test_all_of_it_is_understood(successor: Successor) -> None:
    assert successor.handover.dropped == []
    assert sorted(client.number for client in successor.bus.clients.values()) == list(CLIENTS)
    assert "sources-1" not in successor.store.kept


def test_each_client_receives_the_rest_of_the_unfinished_input(successor: Successor) -> None:
    assert len(UNFINISHED) == 4
    assert {len(numbers) for numbers in RECEIVED.values()} == {0, 4}
    for name, before in RECEIVED.items():
        payloads = messages(successor.received(int(name.removeprefix("client-"))), b"demo/x")
        now = [int(payload.rpartition(b"payload ")[2]) for payload in payloads]
        assert before + now == UNFINISHED
    source = successor.sources.get(b"far/app/1")
    assert source is not None
    assert source.last == UNFINISHED[-1]


def test_subscriptions_modes_tags_and_numbers_continue(successor: Successor) -> None:
    client = successor.by_number(1)
    assert client is not None
    assert client.identity == b"relay01/python/%d/blue" % os.getpid()
    assert dict(successor.routes.patterns(client.fd)) == {b"demo/": 2, b"news/*": 1}
    assert (client.echo, client.soft, client.hard) == (False, b"queue", b"error")
    assert successor.routes.wants_meta(client.fd)
    (_, seq) = MOMENT["sent"]["own/x"]
    assert successor.egress.next_seq(client.identity) == seq + 1
    successor.received(1)
    successor.programs[4].send(b"MSG news/today\0still")
    successor.settle()
    (frame,) = frames_of(successor.received(1))
    assert frame == b"MSG news/today\0relay01/python/%d:seq|still" % os.getpid()


def test_the_queue_and_the_blocked_packet_are_sent(successor: Successor) -> None:
    # The log of client 2 has four messages in its queue; the packet of client 3 waited for room there.
    expected = [b"flood %d" % number for number in range(278, 283)]
    assert messages(successor.received(2), b"flood/x") == expected
    publisher = successor.by_number(3)
    assert publisher is not None
    assert (publisher.blocked_packet, publisher.local) == (None, True)


def test_its_sources_are_followed() -> None:
    memory = private_memory(2048)
    watch = heartbeat_rules(interval=0.5, dead_after=3)
    log = (STATE / "sources-1").read_bytes()
    assert earlier_version.convert([log], memory, dedup_rules(), watch, KILLED, skip=0) == []
    host = Host(dedup_rules(), watch, KILLED, memory)
    host.load()
    assert {one.src: (one.first, one.last, one.epoch, one.missing) for one in host.sources.latest(9)} == {
        b"far/app/1": (1, UNFINISHED[-1], 1, 1 << (UNFINISHED[-1] - 4)),
        b"far/again/2": (1, 2, 2, 0),
        b"far/gap/4": (10, 13, 1, 0b100),
    }
    # Number 4 never arrived.
    assert host.receive(b"far/app/1", 4, UNFINISHED[-1], UNFINISHED[-1] + 1) == ["stale", "duplicate", "accepted"]
    heard = host.liveness.dead[b"far/beat/3"]
    assert isinstance(heard, Death)
    assert heard.gap == pytest.approx(0.5, abs=0.1)
    assert heard.beat == heard.heard == pytest.approx(KILLED - 4, abs=2)
    src, seq = MOMENT["sent"]["own/y"]
    assert host.feed(datagram(src.encode(), seq)) == ["looped"]
    nameless = datagram(b"?", 0, b"demo/y", b"payload 0")
    assert host.feed(nameless, nameless, peer=MOMENT["peer"]) == ["duplicate", "duplicate"]
    assert host.feed(nameless) == ["accepted"]
