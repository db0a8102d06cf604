"""Packets in and out of the kernel, on real sockets: all of them whole and in order, and counted rightly."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import pytest

from tests.native.sockets import SO_SNDBUFFORCE, SO_TIMESTAMPNS, SOCKADDR_IN, pair, read, take, udp, until_readable
from tests.native.twins import each
from tests.support import cannot_here, wait


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + b"x" * size for number in range(count)]


# -- in


def nothing_comes(receiver: Any) -> None:
    with pytest.raises(BlockingIOError) as refused:
        receiver.receive()
    assert refused.value.errno == errno.EAGAIN


def names(receiver: Any, count: int) -> list[tuple[str, int]]:
    """Addresses and ports of the senders of the last batch."""
    found = []
    for number in range(count):
        family, port, address = struct.unpack_from("=H2s4s", receiver.names, number * SOCKADDR_IN)
        assert family == socket.AF_INET
        found.append((socket.inet_ntop(family, address), int.from_bytes(port)))
    return found


@each("sockio")
def test_datagrams_come_whole_in_order_and_at_most_a_batch_at_a_time(sockio: Any) -> None:
    assert sockio.BATCH == 64
    with udp() as (ours, theirs):
        receiver = sockio.Receiver(ours.fileno(), 100, SOCKADDR_IN)
        for batches in ([1], [2], [63], [64], [64, 1], [64, 64], [64, 64, 22], [3]):
            sent = [b"%d:" % number * (1 + number % 9) for number in range(sum(batches))]
            for one in sent:
                theirs.send(one)
            got = take(receiver, len(sent))
            assert [len(batch) for batch in got] == batches
            assert [one for batch in got for one in batch] == sent
            nothing_comes(receiver)


@each("sockio")
def test_a_datagram_that_is_too_long_shows_by_one_byte_and_leaves_its_neighbours_alone(sockio: Any) -> None:
    for largest in (1, 10, 1500, 9000):
        with udp() as (ours, theirs):
            receiver = sockio.Receiver(ours.fileno(), largest, SOCKADDR_IN)
            for size in (largest - 1, largest, largest + 1, largest + 2, largest + 1000, 0, 1):
                theirs.send(b"%d" % (size % 10) * size)
            (got,) = take(receiver, 7)
            sizes = [largest - 1, largest, largest + 1, largest + 1, largest + 1, 0, 1]
            assert [len(one) for one in got] == sizes
            assert all(len(set(one)) <= 1 for one in got)
            assert got[4][:1] == b"%d" % ((largest + 1000) % 10)


@each("sockio")
def test_what_was_handed_out_is_a_copy_of_any_bytes_to_which_no_reference_is_kept(sockio: Any) -> None:
    first = [b"", b"\0", b"", bytes(range(256)), b"\0a\0", b"", b"last"]
    with udp() as (ours, theirs):
        receiver = sockio.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        for one in first:
            theirs.send(one)
        (before,) = take(receiver, 7)
        for one in (b"", b"YYYYYYYY", b"XXX"):
            theirs.send(one)
        assert take(receiver, 3) == [[b"", b"YYYYYYYY", b"XXX"]]
        assert before == first
        assert [sys.getrefcount(before[at]) for at in (3, 4, 6)] == [2] * 3
        assert sys.getrefcount(before) == 2
        theirs.send(b"")
        assert take(receiver, 1) == [[b""]]
        nothing_comes(receiver)


@each("sockio")
def test_lone_datagrams_that_are_kept_stay_as_they_were(sockio: Any) -> None:
    sent = [b"%d:" % number + b"x" * (number * 37 % 600) for number in range(200)]
    kept: dict[int, bytes] = {}
    with udp() as (ours, theirs):
        receiver = sockio.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        for number, one in enumerate(sent):
            theirs.send(one)
            ((got,),) = take(receiver, 1)
            assert (got, hash(got)) == (one, hash(one))
            if number % 7 in (0, 1, 4):
                kept[number] = got
            del got
    assert kept == {number: sent[number] for number in kept}


@each("sockio")
def test_senders_of_a_batch_are_in_its_order(sockio: Any) -> None:
    with udp() as (ours, _), ExitStack() as stack:
        receiver = sockio.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        assert len(receiver.names) == 64 * SOCKADDR_IN
        several = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(4)]
        for number, one in enumerate(several):
            one.bind((f"127.0.0.{number + 2}", 0))
        for first, count in ((0, 64), (1, 64), (3, 1)):
            order = [several[(number + first) % 4] for number in range(count)]
            for number, one in enumerate(order):
                one.sendto(b"%d" % number, ours.getsockname())
            assert take(receiver, count) == [numbered(count)]
            assert names(receiver, count) == [one.getsockname() for one in order]


@each("sockio")
def test_each_datagram_of_a_batch_has_the_stamp_of_when_it_came(sockio: Any) -> None:
    with udp() as (ours, theirs):
        ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver = sockio.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        assert receiver.stamp_ns() == 0

        def stamped_before_it_is_taken() -> bool:
            theirs.send(b"x")
            until_readable(ours)
            between = time.time_ns()
            take(receiver, 1)
            return bool(receiver.stamp_ns() < between)

        # For a moment after the option is set, the kernel stamps datagrams only when they are taken.
        wait(stamped_before_it_is_taken, "the kernel to stamp what comes")
        for _ in range(3):
            before = time.time_ns()
            theirs.send(b"first")
            until_readable(ours)
            between = time.time_ns()
            for _ in range(70):
                theirs.send(b"later")
            assert len(receiver.receive()) == 64
            assert before - 10_000_000 < receiver.stamp_ns() <= between
            stamps = [receiver.stamp_ns(number) for number in range(64)]
            assert stamps[1] >= between
            assert stamps == sorted(stamps)
            (rest,) = take(receiver, 7)
            assert len(rest) == 7
            assert receiver.stamp_ns() >= between


@each("sockio")
def test_without_a_stamp_there_is_none_and_an_old_one_is_not_given_again(sockio: Any) -> None:
    with udp() as (ours, theirs):
        receiver = sockio.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        for wanted, count in product((0, 1, 0, 1), (1, 3, 64, 2)):
            ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, wanted)
            for number in range(count):
                theirs.send(b"%d" % number)
            assert take(receiver, count) == [numbered(count)]
            assert [bool(receiver.stamp_ns(number)) for number in range(count)] == [bool(wanted)] * count
            nothing_comes(receiver)
        for outside in (-1, count, 64):
            with pytest.raises(IndexError):
                receiver.stamp_ns(outside)


@each("sockio")
def test_receive_errors_have_the_errno(sockio: Any) -> None:
    with udp() as (ours, _):
        closed = sockio.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        nothing_comes(closed)
    reader, writer = os.pipe()
    try:
        pipe = sockio.Receiver(reader, 1500, SOCKADDR_IN)
        for _ in range(2):
            with pytest.raises(OSError) as refused:
                pipe.receive()
            assert (refused.value.errno, refused.value.strerror) == (errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    finally:
        os.close(reader)
        os.close(writer)
    with pytest.raises(OSError) as refused:
        closed.receive()
    assert refused.value.errno == errno.EBADF


@each("sockio")
def test_two_receivers_have_nothing_in_common(sockio: Any) -> None:
    with udp() as (ours, theirs), udp() as (other, others):
        both = [sockio.Receiver(one.fileno(), size, SOCKADDR_IN) for one, size in ((ours, 10), (other, 20))]
        theirs.send(b"a" * 30)
        others.send(b"b" * 30)
        assert [take(one, 1) for one in both] == [[[b"a" * 11]], [[b"b" * 21]]]
        assert [names(one, 1) for one in both] == [[theirs.getsockname()], [others.getsockname()]]


# -- out


@contextmanager
def no_signal() -> Iterator[None]:
    """Fail on SIGPIPE in here; Python itself would ignore it."""
    caught: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert caught == []


@each("sockio")
def test_sending_returns_zero_or_the_errno(sockio: Any) -> None:
    one = sockio.Sender().send_one
    with pair(room=10_000) as (ours, theirs):
        fd = ours.fileno()
        for packet in (b"x", b"\0", b"a\0b\0", bytes(range(256)), b"y" * 10_000):
            assert one(fd, packet) == 0
            assert read(theirs) == [packet]
        assert one(fd, b"z" * 50_000) == errno.EMSGSIZE
        count = 0
        while not (failed := one(fd, b"%d" % count)):
            count += 1
        assert failed == errno.EAGAIN
        assert read(theirs) == numbered(count)
        assert one(fd, b"again") == 0
        assert read(theirs) == [b"again"]
    assert one(fd, b"x") == one(-1, b"x") == errno.EBADF


@each("sockio")
@pytest.mark.parametrize("how", ["closed", "shut"])
def test_closed_peer_returns_an_error_and_raises_no_signal(sockio: Any, how: str) -> None:
    with pair() as (ours, theirs), no_signal():
        sender = sockio.Sender()
        sender.load([b"x", b"y"])
        if how == "closed":
            theirs.close()
        else:
            ours.shutdown(socket.SHUT_RDWR)
        for _ in range(2):
            assert sockio.Sender().send_one(ours.fileno(), b"x") == errno.EPIPE
            assert sender.send(ours.fileno()) == 0


@each("sockio")
def test_all_that_was_loaded_arrives_in_order_at_each_socket(sockio: Any) -> None:
    sender, other = sockio.Sender(), sockio.Sender()
    other.load([b"of another sender"])
    any_bytes = [b"\0", b"a", b"", b"\0a\0\0", bytes(range(256)) * 20, b"z", b"MSG a\0b\0c", b"\xff" * 3]
    # What is loaded later replaces it, be it shorter or longer, fewer or more.
    loads = [any_bytes, *(numbered(count, size) for count, size in ((1, 9), (2, 999), (63, 0), (40, 30), (3, 30)))]
    for sent in ([], *loads, numbered(65), [], numbered(200), [b"x"], []):
        sender.load(sent)
        for _ in range(2):
            with pair() as (ours, theirs):
                assert sender.send(ours.fileno()) == len(sent)
                assert read(theirs) == sent
        assert sender.send(-1) == 0
    with pair() as (ours, theirs):
        assert sockio.Sender().send(ours.fileno()) == 0
        assert other.send(ours.fileno()) == 1
        assert read(theirs) == [b"of another sender"]


@each("sockio")
@pytest.mark.parametrize("size", [0, 100, 3000])
@pytest.mark.parametrize("reads", [1, 7, 1 << 30])
def test_a_full_socket_takes_what_it_can_and_the_rest_can_be_sent_later(sockio: Any, size: int, reads: int) -> None:
    sent = numbered(300, size)
    sender = sockio.Sender()
    with pair(room=8000) as (ours, theirs):
        rest, got, rounds = sent, list[bytes](), 0
        while rest:
            sender.load(rest)
            count = sender.send(ours.fileno())
            assert 0 <= count <= len(rest)
            if count < len(rest):
                # It begins anew each time: what it has sent is for its caller to know.
                assert sender.send(ours.fileno()) == 0
                assert sockio.Sender().send_one(ours.fileno(), rest[count]) == errno.EAGAIN
            rest = rest[count:]
            got += read(theirs, reads)
            rounds += 1
        got += read(theirs)
        assert got == sent
        assert rounds > 10


@each("sockio")
def test_it_stops_before_a_packet_that_is_too_large(sockio: Any) -> None:
    sender, large = sockio.Sender(), b"x" * 100_000
    with pair(room=10_000) as (ours, theirs):
        for sent in ([b"1", b"2"], []):
            sender.load([*sent, large, b"3"])
            assert sender.send(ours.fileno()) == len(sent)
            assert read(theirs) == sent
        assert sender.send_one(ours.fileno(), large) == errno.EMSGSIZE


@each("sockio")
def test_more_than_the_kernel_takes_at_a_time_arrives_in_order(sockio: Any) -> None:
    sender = sockio.Sender()
    with pair(room=4 << 20) as (ours, theirs):
        if ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 8 << 20:
            try:
                ours.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4 << 20)
            except PermissionError:
                cannot_here("net.core.wmem_max is too small for so many packets, and this is not root")
        for count in (1023, 1024, 1025, 2048, 2049, 5000):
            sender.load(numbered(count))
            assert sender.send(ours.fileno()) == count
            assert read(theirs) == numbered(count)


@each("sockio")
def test_loaded_packets_are_kept_until_the_next_load(sockio: Any) -> None:
    def fresh() -> list[bytes]:
        """Packets to which nothing else refers."""
        return [b"packet %d " % number * 50 for number in range(30)]

    sender = sockio.Sender()
    sender.load(fresh())
    # What comes to stand where freed packets stood would be sent in their place.
    others = [b"!" * len(one) for one in fresh()]
    with pair() as (ours, theirs):
        assert sender.send(ours.fileno()) == 30
        assert read(theirs) == fresh()
    mine = fresh()[0]
    before = sys.getrefcount(mine)
    sender.load([mine])
    assert sys.getrefcount(mine) > before
    for _ in range(10):
        sender.send(-1)
    sender.load(others)
    assert sys.getrefcount(mine) == before


# -- to a segment


@each("sockio")
def test_datagrams_go_to_the_address_and_an_error_has_its_errno(sockio: Any) -> None:
    with udp() as (ours, _):
        to = ours.getsockname()
        packed = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", to[1], socket.inet_aton(to[0]))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sender = sockio.BroadcastSender(sock, to, packed)
            sent = [b"a", b"", b"\0b\0", b"x" * 1400]
            assert [sender.broadcast(datagram) for datagram in sent] == [0] * len(sent)
            assert sender.broadcast(b"x" * 70_000) == errno.EMSGSIZE
            assert sender.broadcast(b"again") == 0
        until_readable(ours)
        assert read(ours) == [*sent, b"again"]


# -- packets in


@each("sockio")
def test_a_packet_is_handed_out_as_bytes_of_its_own(sockio: Any) -> None:
    receiver = sockio.PacketReceiver(100)
    with pair() as (ours, theirs):
        assert receiver.receive(ours.fileno()) == -1
        got = []
        for packet in (b"one", b"", b"t\0o", b"x" * 100, b"y" * 200):
            theirs.send(packet)
            got.append(receiver.packet(receiver.receive(ours.fileno())))
    # One byte more than the ceiling shows that a packet is too long.
    assert got == [b"one", b"", b"t\0o", b"x" * 100, b"y" * 101]
