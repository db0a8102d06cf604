"""Packets in and out of the kernel, on real sockets: all of them whole and in order, and counted rightly."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from bccnd.native.buffers.sent_datagrams import SentDatagrams
from bccnd.native.system.sockio import BATCH, PacketReceiver, Receiver, Sender, send_to
from tests.support import cannot_here, wait

#: from <asm-generic/socket.h>; the socket module does not name them
SO_SNDBUFFORCE: Final = 32
SO_TIMESTAMPNS: Final = 35
SOCKADDR_IN: Final = 16


@contextmanager
def udp() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets of which the second sends to the first."""
    with socket.socket(type=socket.SOCK_DGRAM) as ours, socket.socket(type=socket.SOCK_DGRAM) as theirs:
        ours.bind(("127.0.0.1", 0))
        ours.setblocking(False)
        theirs.connect(ours.getsockname())
        yield ours, theirs


@contextmanager
def pair(room: int = 0) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection; the first has a send buffer of ``room`` bytes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        if room:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        yield ours, theirs


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + b"x" * size for number in range(count)]


def read(sock: socket.socket, most: int = 1 << 30) -> list[bytes]:
    """The packets that are there, at most so many."""
    found: list[bytes] = []
    with suppress(BlockingIOError):
        while len(found) < most:
            found.append(sock.recv(1 << 20))
    return found


def take(receiver: Any, theirs: socket.socket, sent: list[bytes]) -> list[list[bytes]]:
    """Send datagrams, and return the batches in which they arrive."""
    for one in sent:
        theirs.send(one)
    batches: list[list[bytes]] = []

    def done() -> bool:
        with suppress(BlockingIOError):
            batches.append(receiver.receive())
        return sum(map(len, batches)) >= len(sent)

    wait(done, f"{len(sent)} datagrams")
    return batches


# -- datagrams in


def test_datagrams_arrive_in_order_with_their_senders() -> None:
    with udp() as (ours, theirs):
        receiver = Receiver(ours.fileno(), 100, SOCKADDR_IN)
        kept: list[tuple[list[bytes], list[bytes]]] = []  # some of them stay, as they were
        for sizes in ([1], [2], [63], [64], [64, 1], [64, 64, 22], [1], [1]):
            sent = [b"%d:" % number * (number % 9) for number in range(sum(sizes))]
            got = take(receiver, theirs, sent)
            assert [len(batch) for batch in got] == sizes
            assert [one for batch in got for one in batch] == sent
            some = [one for batch in got for one in batch[::3]]
            kept.append((some, [bytes(bytearray(one)) for one in some]))
            del got[:]
            for number in range(sizes[-1]):
                _, port, address = struct.unpack_from("=H2s4s", receiver.names, number * SOCKADDR_IN)
                assert (socket.inet_ntoa(address), int.from_bytes(port)) == theirs.getsockname()
            with pytest.raises(BlockingIOError):
                receiver.receive()
        assert all(batch == copies for batch, copies in kept)


@pytest.mark.parametrize("largest", [1, 10, 1500])
def test_a_datagram_that_is_too_long_shows_by_one_byte(largest: int) -> None:
    with udp() as (ours, theirs):
        receiver = Receiver(ours.fileno(), largest, SOCKADDR_IN)
        sent = [b"%d" % (size % 10) * size for size in (largest - 1, largest, largest + 1, largest + 1000, 0, 1)]
        assert take(receiver, theirs, sent) == [[one[: largest + 1] for one in sent]]


def test_each_datagram_has_the_kernels_timestamp_or_none() -> None:
    with udp() as (ours, theirs):
        receiver = Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        for wanted in (0, 1, 0, 1):
            ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, wanted)
            for count in (1, 3, BATCH, 2):
                before = time.time_ns()
                take(receiver, theirs, numbered(count))
                stamps = [receiver.stamp_ns(number) for number in range(count)]
                assert stamps == sorted(stamps)
                assert all(before - 10_000_000 < stamp <= time.time_ns() if wanted else not stamp for stamp in stamps)
                for outside in (-1, count, BATCH):
                    with pytest.raises(IndexError):
                        receiver.stamp_ns(outside)


def test_own_datagrams_are_counted_and_left_out() -> None:
    with udp() as (ours, theirs), socket.socket(type=socket.SOCK_DGRAM) as own:
        ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver, sent = Receiver(ours.fileno(), 100, SOCKADDR_IN), SentDatagrams()
        for order in ("o", "oo", "xo", "ox", "oxoxx", "xxxo", "x"):
            before = time.time_ns()
            for number, kind in enumerate(order):
                datagram = b"%d" % number
                if kind == "o":
                    sent.put(datagram, 0.0)
                (own if kind == "o" else theirs).sendto(datagram, ours.getsockname())
            wait(lambda: select.select([ours], [], [], 0)[0], "a datagram")
            others = [b"%d" % number for number, kind in enumerate(order) if kind == "x"]
            assert (receiver.receive(sent, 1.0), receiver.own) == (others, order.count("o"))
            for number in range(len(others)):
                port = struct.unpack_from("!2xH", receiver.names, number * SOCKADDR_IN)[0]
                assert port == theirs.getsockname()[1]
                assert receiver.stamp_ns(number) > before - 10_000_000
        assert len(sent) == 0


def test_receive_errors_have_the_errno() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    receiver = Receiver(reader, 1500, SOCKADDR_IN)
    for expected in (errno.ENOTSOCK, errno.EBADF):
        with pytest.raises(OSError) as refused:
            receiver.receive()
        assert (refused.value.errno, refused.value.strerror) == (expected, os.strerror(expected))
        with suppress(OSError):
            os.close(reader)


# -- packets out


def test_sending_returns_zero_or_the_errno() -> None:
    sender = Sender()
    with pair(room=10_000) as (ours, theirs):
        fd = ours.fileno()
        for packet in (b"\0", b"a\0b\0", bytes(range(256)), b"y" * 10_000):
            assert sender.send_one(fd, packet) == 0
            assert read(theirs) == [packet]
        assert sender.send_one(fd, b"z" * 50_000) == errno.EMSGSIZE
        count = 0
        while not (failed := sender.send_one(fd, b"%d" % count)):
            count += 1
        assert failed == errno.EAGAIN
        assert read(theirs) == numbered(count)
    assert sender.send_one(-1, b"x") == errno.EBADF


def test_a_closed_peer_is_an_error_and_no_signal() -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: caught.append(number))
    try:
        with pair() as (ours, theirs):
            sender = Sender()
            sender.load([b"x", b"y"])
            theirs.close()
            assert (sender.send_one(ours.fileno(), b"x"), sender.send(ours.fileno())) == (errno.EPIPE, 0)
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert caught == []


def test_loaded_packets_arrive_in_order_at_each_socket() -> None:
    sender = Sender()
    any_bytes = [b"\0", b"a", b"", b"\0a\0\0", bytes(range(256)) * 20, b"\xff" * 3]
    for sent in ([], any_bytes, numbered(1, 9), numbered(63), numbered(40, 30), [], numbered(200), [b"x"]):
        sender.load([one + b"!" for one in sent])  # nothing else refers to these
        others = [one + b"?" for one in sent]
        for _ in range(2):
            with pair() as (ours, theirs):
                assert sender.send(ours.fileno()) == len(others)
                assert read(theirs) == [one + b"!" for one in sent]
        assert sender.send(-1) == 0


@pytest.mark.parametrize("reads", [1, 7, 1 << 30])
@pytest.mark.parametrize("size", [0, 3000])
def test_a_full_socket_takes_the_rest_later(size: int, reads: int) -> None:
    rest, got, sender = numbered(300, size), list[bytes](), Sender()
    with pair(room=8000) as (ours, theirs):
        while rest:
            sender.load(rest)
            count = sender.send(ours.fileno())
            if count < len(rest):
                assert sender.send_one(ours.fileno(), rest[count]) == errno.EAGAIN
            rest = rest[count:]
            got += read(theirs, reads)
        assert got + read(theirs) == numbered(300, size)
        sender.load([b"1", b"x" * 100_000, b"2"])  # too large for the socket
        assert (sender.send(ours.fileno()), read(theirs)) == (1, [b"1"])


def test_more_than_the_kernel_takes_at_a_time_arrives_in_order() -> None:
    sender = Sender()
    with pair(room=4 << 20) as (ours, theirs):
        if ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 8 << 20:
            try:
                ours.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4 << 20)
            except PermissionError:
                cannot_here("net.core.wmem_max is too small for so many packets, and this is not root")
        for count in (1023, 1024, 1025, 5000):
            sender.load(numbered(count))
            assert sender.send(ours.fileno()) == count
            assert read(theirs) == numbered(count)


def test_datagrams_go_to_the_address_and_an_error_has_its_errno() -> None:
    with udp() as (ours, _), socket.socket(type=socket.SOCK_DGRAM) as sock:
        host, port = ours.getsockname()
        packed = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton(host))
        sent = [b"a", b"", b"\0b\0", b"x" * 1400]
        assert [send_to(sock.fileno(), datagram, packed) for datagram in sent] == [0] * len(sent)
        assert send_to(sock.fileno(), b"x" * 70_000, packed) == errno.EMSGSIZE
        wait(lambda: select.select([ours], [], [], 0)[0], "a datagram")
        assert read(ours) == sent


# -- packets in


def test_a_packet_is_handed_out_as_bytes_of_its_own() -> None:
    receiver, got = PacketReceiver(100), []
    with pair() as (ours, theirs):
        assert receiver.receive(ours.fileno()) is None
        for packet in (b"one", b"", b"t\0o", b"x" * 100, b"y" * 200):
            theirs.send(packet)
            got.append(receiver.receive(ours.fileno()))
    # One byte more than the ceiling shows that a packet is too long.
    assert got == [b"one", b"", b"t\0o", b"x" * 100, b"y" * 101]
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        receiver.receive(-1)
