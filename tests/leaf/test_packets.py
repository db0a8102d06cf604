"""Packets in and out of the kernel, on real sockets: all of them whole and in order, and how many is told rightly."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from tests.leaf.twins import each
from tests.support import cannot_here, wait

#: from <asm-generic/socket.h>; the socket module does not name them
SO_SNDBUFFORCE: Final = 32
SO_TIMESTAMPNS: Final = 35
SOCKADDR_IN: Final = 16
SOCKADDR_IN6: Final = 28


# -- in


@contextmanager
def udp(family: socket.AddressFamily = socket.AF_INET) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets of which the second sends to the first."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family, socket.SOCK_DGRAM) as ours, socket.socket(family, socket.SOCK_DGRAM) as theirs:
        try:
            ours.bind((host, 0))
        except OSError as error:
            cannot_here(f"no {host}: {error}")
        ours.setblocking(False)
        theirs.connect(ours.getsockname())
        yield ours, theirs


def take(receiver: Any, count: int) -> list[list[bytes]]:
    """Batches until so many datagrams have come."""
    batches: list[list[bytes]] = []

    def done() -> bool:
        with suppress(BlockingIOError):
            batches.append(receiver.receive())
        return sum(map(len, batches)) >= count

    wait(done, f"{count} datagrams")
    return batches


def nothing_comes(receiver: Any) -> None:
    with pytest.raises(BlockingIOError) as refused:
        receiver.receive()
    assert refused.value.errno == errno.EAGAIN


def name4(receiver: Any, number: int) -> tuple[str, int]:
    family, port, address = struct.unpack_from(
        "=H2s4s", receiver.names[number * SOCKADDR_IN : (number + 1) * SOCKADDR_IN]
    )
    assert family == socket.AF_INET
    return socket.inet_ntoa(address), int.from_bytes(port)


def name6(receiver: Any, number: int) -> tuple[str, int]:
    room = receiver.names[number * SOCKADDR_IN6 : (number + 1) * SOCKADDR_IN6]
    family, port, address = struct.unpack_from("=H2s4x16s", room)
    assert family == socket.AF_INET6
    return socket.inet_ntop(socket.AF_INET6, address), int.from_bytes(port)


@each("packets")
@pytest.mark.parametrize(
    ("count", "batches"),
    [(1, [1]), (2, [2]), (63, [63]), (64, [64]), (65, [64, 1]), (128, [64, 64]), (150, [64, 64, 22])],
)
def test_datagrams_come_whole_in_order_and_at_most_a_batch_at_a_time(
    packets: Any, count: int, batches: list[int]
) -> None:
    sent = [b"%d:" % number * (1 + number % 9) for number in range(count)]
    with udp() as (ours, theirs):
        receiver = packets.Receiver(ours.fileno(), 100, SOCKADDR_IN)
        assert packets.BATCH == 64
        for _ in range(3):
            for one in sent:
                theirs.send(one)
            got = take(receiver, count)
            assert [len(batch) for batch in got] == batches
            assert [one for batch in got for one in batch] == sent
            nothing_comes(receiver)


@each("packets")
@pytest.mark.parametrize("largest", [1, 10, 1500, 9000])
def test_a_datagram_that_is_too_long_shows_by_one_byte_and_leaves_its_neighbours_alone(
    packets: Any, largest: int
) -> None:
    with udp() as (ours, theirs):
        receiver = packets.Receiver(ours.fileno(), largest, SOCKADDR_IN)
        for size in (largest - 1, largest, largest + 1, largest + 2, largest + 1000, 0, 1):
            theirs.send(b"%d" % (size % 10) * size)
        (got,) = take(receiver, 7)
        sizes = (largest - 1, largest, largest + 1, largest + 1, largest + 1, 0, 1)
        assert [len(one) for one in got] == list(sizes)
        assert all(len(set(one)) <= 1 for one in got)
        assert got[4][:1] == b"%d" % ((largest + 1000) % 10)


@each("packets")
def test_an_empty_datagram_is_one_and_every_byte_comes_as_it_was_sent(packets: Any) -> None:
    every = bytes(range(256))
    with udp() as (ours, theirs):
        receiver = packets.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        for one in (b"", b"\0", b"", every, b"\0a\0", b""):
            theirs.send(one)
        assert take(receiver, 6) == [[b"", b"\0", b"", every, b"\0a\0", b""]]
        theirs.send(b"")
        assert take(receiver, 1) == [[b""]]
        nothing_comes(receiver)


@each("packets")
def test_what_was_handed_out_stays_as_it_is_and_belongs_to_who_has_it(packets: Any) -> None:
    with udp() as (ours, theirs):
        receiver = packets.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        for one in (b"first", b"second", b"third"):
            theirs.send(one)
        (before,) = take(receiver, 3)
        for one in (b"XXXXXXX", b"YYYYYYYY", b""):
            theirs.send(one)
        assert take(receiver, 3) == [[b"XXXXXXX", b"YYYYYYYY", b""]]
        assert before == [b"first", b"second", b"third"]
        counts = [sys.getrefcount(one) for one in before]
        assert counts == [3] * 3
        assert sys.getrefcount(before) == 2


@each("packets")
def test_the_senders_of_a_batch_stand_in_its_order(packets: Any) -> None:
    with udp() as (ours, _), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        receiver = packets.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        assert len(receiver.names) == 64 * SOCKADDR_IN
        several = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(4)]
        try:
            for number, one in enumerate(several):
                one.bind((f"127.0.0.{number + 2}", 0))
            for round_ in range(2):
                order = [several[(number + round_) % 4] for number in range(64)]
                for number, one in enumerate(order):
                    one.sendto(b"%d" % number, ours.getsockname())
                (got,) = take(receiver, 64)
                assert got == [b"%d" % number for number in range(64)]
                assert [name4(receiver, number) for number in range(64)] == [one.getsockname() for one in order]
            other.bind(("127.0.0.9", 0))
            other.sendto(b"x", ours.getsockname())
            take(receiver, 1)
            assert name4(receiver, 0) == other.getsockname()
        finally:
            for one in several:
                one.close()


@each("packets")
def test_so_do_those_of_ipv6(packets: Any) -> None:
    if not socket.has_ipv6:
        cannot_here("no IPv6")
    with udp(socket.AF_INET6) as (ours, theirs), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other:
        receiver = packets.Receiver(ours.fileno(), 1500, SOCKADDR_IN6)
        assert len(receiver.names) == 64 * SOCKADDR_IN6
        other.connect(ours.getsockname())
        for number in range(10):
            (theirs, other)[number % 2].send(b"%d" % number)
        assert take(receiver, 10) == [[b"%d" % number for number in range(10)]]
        expected = [(theirs, other)[number % 2].getsockname()[:2] for number in range(10)]
        assert [name6(receiver, number) for number in range(10)] == expected
        nothing_comes(receiver)


@each("packets")
def test_the_stamp_is_when_the_first_of_a_batch_came(packets: Any) -> None:
    with udp() as (ours, theirs):
        ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver = packets.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        assert receiver.stamp_ns() == 0

        def stamps() -> bool:
            """Until the kernel has got round to stamping all that comes, it stamps what is taken."""
            theirs.send(b"x")
            between = time.time_ns()
            time.sleep(0.002)
            take(receiver, 1)
            return bool(receiver.stamp_ns() < between + 1_000_000)

        wait(stamps, "the kernel to stamp what comes")
        last = 0
        for _ in range(3):
            before = time.time_ns()
            theirs.send(b"first")
            between = time.time_ns()
            time.sleep(0.002)
            for _ in range(70):
                theirs.send(b"later")
            assert len(receiver.receive()) == 64
            assert before - 50_000 <= receiver.stamp_ns() <= between + 1_000_000
            assert receiver.stamp_ns() > last
            last = receiver.stamp_ns()
            assert len(receiver.receive()) == 7
            assert receiver.stamp_ns() > between + 1_000_000


@each("packets")
def test_without_a_stamp_there_is_none_and_an_old_one_is_not_told_again(packets: Any) -> None:
    with udp() as (ours, theirs):
        receiver = packets.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        for wanted in (0, 1, 0, 1):
            ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, wanted)
            theirs.send(b"x")
            take(receiver, 1)
            assert bool(receiver.stamp_ns()) is bool(wanted)


@each("packets")
def test_where_nothing_can_be_received_the_error_says_why(packets: Any) -> None:
    with udp() as (ours, _):
        receiver = packets.Receiver(ours.fileno(), 1500, SOCKADDR_IN)
        nothing_comes(receiver)
    for _ in range(2):
        with pytest.raises(OSError) as refused:
            receiver.receive()
        assert refused.value.errno == errno.EBADF
        assert refused.value.strerror == os.strerror(errno.EBADF)
    reader, writer = os.pipe()
    try:
        with pytest.raises(OSError) as refused:
            packets.Receiver(reader, 1500, SOCKADDR_IN).receive()
        assert refused.value.errno == errno.ENOTSOCK
    finally:
        os.close(reader)
        os.close(writer)


@each("packets")
def test_two_receivers_have_nothing_in_common(packets: Any) -> None:
    with udp() as (ours, theirs), udp() as (other, others):
        pair = [packets.Receiver(one.fileno(), size, SOCKADDR_IN) for one, size in ((ours, 10), (other, 20))]
        theirs.send(b"a" * 30)
        others.send(b"b" * 30)
        assert [take(one, 1) for one in pair] == [[[b"a" * 11]], [[b"b" * 21]]]
        assert [name4(one, 0) for one in pair] == [theirs.getsockname(), others.getsockname()]


# -- out


@contextmanager
def packet_pair(room: int = 0) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's connection from both sides, ours first; ``room`` is what the kernel is to keep for us."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        for one in (ours, theirs):
            one.setblocking(False)
        if room:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        yield ours, theirs


def waiting(sock: socket.socket, count: int = 1 << 30) -> list[bytes]:
    """At most so many of the packets that are there."""
    found: list[bytes] = []
    with suppress(BlockingIOError):
        while len(found) < count:
            found.append(sock.recv(1 << 20))
    return found


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"%d" % number + b"x" * size for number in range(count)]


@contextmanager
def no_signal() -> Iterator[None]:
    """Whoever gets SIGPIPE in here fails; Python itself would ignore it."""
    caught: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert caught == []


@each("packets")
def test_a_packet_is_sent_or_it_is_said_why_not(packets: Any) -> None:
    every = bytes(range(256))
    with packet_pair(room=10_000) as (ours, theirs):
        fd = ours.fileno()
        for one in (b"x", b"\0", b"a\0b\0", every, b"y" * 10_000):
            assert packets.Sender().one(fd, one) == 0
            assert waiting(theirs) == [one]
        assert packets.Sender().one(fd, b"z" * 50_000) == errno.EMSGSIZE
        count = 0
        while not (failed := packets.Sender().one(fd, b"%d" % count)):
            count += 1
        assert failed == errno.EAGAIN
        assert waiting(theirs) == numbered(count)
        assert packets.Sender().one(fd, b"again") == 0
        assert waiting(theirs) == [b"again"]
    assert packets.Sender().one(fd, b"x") == errno.EBADF


@each("packets")
@pytest.mark.parametrize("how", ["closed", "shut"])
def test_who_has_gone_costs_an_error_and_no_signal(packets: Any, how: str) -> None:
    with packet_pair() as (ours, theirs), no_signal():
        sender = packets.Sender()
        sender.load([b"x", b"y"])
        if how == "closed":
            theirs.close()
        else:
            ours.shutdown(socket.SHUT_RDWR)
        for _ in range(2):
            assert packets.Sender().one(ours.fileno(), b"x") == errno.EPIPE
            assert sender.send(ours.fileno()) == 0


@each("packets")
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_all_that_was_loaded_arrives_in_order_at_everybody_it_is_sent_to(packets: Any, count: int) -> None:
    sender = packets.Sender()
    sender.load(numbered(count))
    for _ in range(3):
        with packet_pair() as (ours, theirs):
            assert sender.send(ours.fileno()) == count
            assert waiting(theirs) == numbered(count)


@each("packets")
def test_packets_are_told_apart_and_hold_any_byte(packets: Any) -> None:
    sent = [b"\0", b"a", b"", b"\0a\0\0", bytes(range(256)) * 20, b"z", b"MSG a\0b\0c", b"\xff" * 3]
    sender = packets.Sender()
    sender.load(sent)
    with packet_pair() as (ours, theirs):
        assert sender.send(ours.fileno()) == len(sent)
        assert waiting(theirs) == sent


@each("packets")
def test_without_packets_none_is_sent(packets: Any) -> None:
    sender = packets.Sender()
    with packet_pair() as (ours, theirs):
        assert sender.send(ours.fileno()) == 0
        sender.load([])
        assert sender.send(ours.fileno()) == 0
        sender.load([b"x"])
        sender.load([])
        assert sender.send(ours.fileno()) == 0
        assert waiting(theirs) == []


@each("packets")
@pytest.mark.parametrize("size", [0, 100, 3000])
@pytest.mark.parametrize("reads", [1, 7, 1 << 30])
def test_a_full_socket_takes_what_it_can_and_the_rest_can_be_sent_later(packets: Any, size: int, reads: int) -> None:
    sent = numbered(300, size)
    sender = packets.Sender()
    with packet_pair(room=8000) as (ours, theirs):
        rest, got, rounds = sent, list[bytes](), 0
        while rest:
            sender.load(rest)
            count = sender.send(ours.fileno())
            assert 0 <= count <= len(rest)
            rest = rest[count:]
            if rest:
                assert packets.Sender().one(ours.fileno(), rest[0]) == errno.EAGAIN
            got += waiting(theirs, reads)
            rounds += 1
        got += waiting(theirs)
        assert got == sent
        assert rounds > 10


@each("packets")
def test_how_many_went_out_is_how_many_have_arrived(packets: Any) -> None:
    sender = packets.Sender()
    sender.load(numbered(100, 500))
    for read in (0, 1, 2, 3, 5):
        with packet_pair(room=20_000) as (ours, theirs):
            first = sender.send(ours.fileno())
            assert 0 < first < 100
            assert sender.send(ours.fileno()) == 0
            got = waiting(theirs, read)
            second = sender.send(ours.fileno())
            got += waiting(theirs)
            # It begins anew each time: what it has sent is for its caller to know.
            assert got == numbered(100, 500)[:first] + numbered(100, 500)[:second]


@each("packets")
def test_it_stops_before_one_that_no_packet_can_hold(packets: Any) -> None:
    sender = packets.Sender()
    sender.load([b"1", b"2", b"x" * 100_000, b"3"])
    with packet_pair(room=10_000) as (ours, theirs):
        assert sender.send(ours.fileno()) == 2
        assert waiting(theirs) == [b"1", b"2"]
        assert packets.Sender().one(ours.fileno(), b"x" * 100_000) == errno.EMSGSIZE
    sender.load([b"x" * 100_000])
    with packet_pair(room=10_000) as (ours, theirs):
        assert sender.send(ours.fileno()) == 0
        assert waiting(theirs) == []


@each("packets")
@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 2049, 5000])
def test_more_than_the_kernel_takes_at_a_time_is_sent_all_the_same(packets: Any, count: int) -> None:
    sender = packets.Sender()
    sender.load(numbered(count))
    with udp() as (ours, theirs):
        # What has no room at the other end is dropped there: all of it goes out, and what arrives is in order.
        assert sender.send(theirs.fileno()) == count
        numbers = [int(one) for one in waiting(ours)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 100


@each("packets")
def test_more_than_the_kernel_takes_at_a_time_arrives_in_order(packets: Any) -> None:
    sender = packets.Sender()
    sender.load(numbered(2100))
    with packet_pair(room=4 << 20) as (ours, theirs):
        if ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 8 << 20:
            try:
                ours.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4 << 20)
            except PermissionError:
                cannot_here("net.core.wmem_max is too small for so many packets, and this is not root")
        assert sender.send(ours.fileno()) == 2100
        assert waiting(theirs) == numbered(2100)


@each("packets")
def test_what_is_loaded_again_takes_the_place_of_what_was(packets: Any) -> None:
    sender = packets.Sender()
    with packet_pair() as (ours, theirs):
        for count, size in ((5, 10), (2, 1000), (40, 1), (1, 9), (40, 30), (3, 30), (40, 0), (7, 9), (8, 9)):
            one = [bytes([65 + number]) * (size + number) for number in range(count)]
            sender.load(one)
            assert sender.send(ours.fileno()) == count
            assert waiting(theirs) == one


def fresh(count: int) -> Sequence[bytes]:
    """Packets that nobody else has."""
    return [b"packet %d " % number * 50 for number in range(count)]


@each("packets")
def test_what_is_loaded_lives_until_something_else_is(packets: Any) -> None:
    sender = packets.Sender()
    sender.load(list(fresh(30)))
    # Whoever comes to stand where they stood would be sent in their place.
    others = [b"!" * len(one) for one in fresh(30)]
    with packet_pair() as (ours, theirs):
        assert sender.send(ours.fileno()) == 30
        assert waiting(theirs) == fresh(30)
    (mine,) = fresh(1)
    before = sys.getrefcount(mine)
    sender.load([mine])
    assert sys.getrefcount(mine) > before
    for _ in range(10):
        sender.send(-1)
    sender.load(others)
    assert sys.getrefcount(mine) == before


@each("packets")
def test_two_senders_have_nothing_in_common(packets: Any) -> None:
    pair = packets.Sender(), packets.Sender()
    pair[0].load([b"1", b"2"])
    pair[1].load([b"3"])
    with packet_pair() as (ours, theirs):
        assert [one.send(ours.fileno()) for one in pair] == [2, 1]
        assert waiting(theirs) == [b"1", b"2", b"3"]


@each("packets")
def test_a_descriptor_that_is_none_takes_nothing(packets: Any) -> None:
    sender = packets.Sender()
    sender.load([b"x"])
    assert sender.send(-1) == 0
    assert packets.Sender().one(-1, b"x") == errno.EBADF
