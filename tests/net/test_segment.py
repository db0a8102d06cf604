"""Segments on real sockets: batches in order, oversized datagrams, senders' addresses, warnings."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.core.wire.bccn1 import MAX_RECEIVE
from bccnd.native.system.sockio import BATCH
from bccnd.net.segment import Peers, Segment, SegmentOptions
from tests.net.sockets import bound_udp, broadcaster
from tests.support import BROADCAST, free_port, wait, without_root

Opens = Callable[..., Segment]


@pytest.fixture
def options() -> SegmentOptions:
    return SegmentOptions("here", BROADCAST, free_port(), bind="0.0.0.0", receive_buffer=1 << 20, largest=MAX_RECEIVE)


@pytest.fixture
def opens(options: SegmentOptions) -> Iterator[Opens]:
    """Opens segments, with some options changed, and closes them at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda **changes: stack.enter_context(contextlib.closing(Segment(replace(options, **changes))))


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with broadcaster("127.0.0.1") as sock:
        yield sock


def take(segment: Segment, count: int) -> list[list[bytes]]:
    """Batches until ``count`` datagrams have come."""
    batches: list[list[bytes]] = []

    def done() -> bool:
        with contextlib.suppress(BlockingIOError):
            batches.append(segment.receiver.receive())
        return sum(map(len, batches)) >= count

    wait(done, f"{count} datagrams")
    return batches


def test_a_broadcast_reaches_all_that_share_the_port(opens: Opens) -> None:
    segment, other = opens(), opens()
    assert segment.sender.send(b"hello") is None
    assert take(segment, 1) == [[b"hello"]]
    assert segment.receiver.stamp_ns()  # the kernel's, which was asked for
    assert take(other, 1) == [[b"hello"]]
    assert (segment.counters.sent, other.counters.sent) == (1, 0)


def test_each_datagram_of_a_batch_has_its_sender(opens: Opens, options: SegmentOptions) -> None:
    segment = opens()
    names = []
    for address in ("127.0.0.1", "127.0.0.2", "127.200.100.50"):
        with broadcaster(address) as sock:
            names.append(f"{address}:{sock.getsockname()[1]}")
            sock.sendto(address.encode(), (BROADCAST, options.port))
    (batch,) = take(segment, 3)
    assert batch == [name.partition(":")[0].encode() for name in names]
    peers = segment.peers
    assert [peers[0], peers[1], peers[2]] == names
    assert peers[:3] == names
    assert peers[1:3] == names[1:]
    assert len(peers) == BATCH


def test_a_broadcast_that_fails_is_counted_by_its_error(opens: Opens) -> None:
    segment = opens()
    assert segment.sender.send(b"x" * 70_000) == "EMSGSIZE"
    assert segment.sender.send(b"x" * 70_000) == "EMSGSIZE"
    assert segment.sender.send(b"fine") is None
    assert segment.counters.errors.all() == {"EMSGSIZE": 2}
    assert segment.counters.sent == 1
    assert take(segment, 1) == [[b"fine"]]


#: bytes, more than an unprivileged program gets
MUCH = 1 << 30


def sockaddr_in6(address: str, port: int, scope: int = 0, flow: int = 0) -> bytes:
    packed = socket.inet_pton(socket.AF_INET6, address)
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16s", port, flow, packed) + struct.pack("=I", scope)


LO = socket.if_nametoindex("lo")
#: an interface that no host has
NOWHERE = 2**31 - 1
PEERS6: list[tuple[bytes, str]] = [
    (sockaddr_in6("::1", 5400), "[::1]:5400"),
    (sockaddr_in6("::", 0), "[::]:0"),
    (sockaddr_in6("fd00::2", 65_535), "[fd00::2]:65535"),
    (sockaddr_in6("2001:db8:1:2:3:4:5:6", 1), "[2001:db8:1:2:3:4:5:6]:1"),
    (sockaddr_in6("fd00::2", 5400, flow=0xFFFFF), "[fd00::2]:5400"),
    (sockaddr_in6("::ffff:10.0.0.9", 5400), "[::ffff:10.0.0.9]:5400"),
    (sockaddr_in6("fe80::1", 5400, LO), "[fe80::1%lo]:5400"),
    # The interface may have gone since.
    (sockaddr_in6("fe80::1", 5400, NOWHERE), "[fe80::1]:5400"),
]


def test_senders_of_ipv6_stand_in_brackets() -> None:
    peers = Peers(memoryview(b"".join(raw for raw, _ in PEERS6)), socket.AF_INET6)
    names = [name for _, name in PEERS6]
    assert len(peers) == len(names)
    assert [peers[number] for number in range(len(names))] == peers[:] == names
    assert peers[2:5] == names[2:5]

    # The interface is looked up in the network of the segment.
    looked_up = {12: "lan7"}
    peers = Peers(memoryview(sockaddr_in6("fe80::1", 5400, 12)), socket.AF_INET6, looked_up.pop)
    assert (peers[:], looked_up) == (["[fe80::1%lan7]:5400"], {})


@pytest.fixture
def passed(options: SegmentOptions) -> Iterator[socket.socket]:
    with bound_udp(port=options.port) as sock:
        yield sock


def test_a_smaller_buffer_than_wanted_is_warned_of(
    passed: socket.socket, options: SegmentOptions, tmp_path: Path
) -> None:
    if int(Path("/proc/sys/net/core/rmem_max").read_text()) >= MUCH:
        pytest.skip("this host grants everybody any buffer")
    for sock in (None, passed):
        with without_root(tmp_path), contextlib.closing(Segment(replace(options, receive_buffer=MUCH), sock)) as one:
            (warning,) = one.warnings
        assert f"net.core.rmem_max={MUCH}" in warning
        assert (f"ReceiveBuffer={MUCH}" in warning) is (sock is not None)


def test_drops_before_the_start_are_a_warning(
    passed: socket.socket, options: SegmentOptions, sender: socket.socket
) -> None:
    passed.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(200):
        sender.sendto(b"x" * 1000, (BROADCAST, options.port))
    segment = Segment(replace(options, receive_buffer=4096), passed)
    (warning,) = segment.warnings
    assert f"dropped {segment.kernel_drops()} datagrams" in warning
    assert 0 < segment.kernel_drops() < 200
    assert segment.logged_drops == segment.kernel_drops()
    # Another daemon has logged some of them: the log says how many are new as soon as it serves.
    again = Segment(replace(options, receive_buffer=4096), passed, 1)
    assert (again.warnings, again.logged_drops) == ([], 1)
