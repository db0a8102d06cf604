"""The ledger, on real sockets and in a second mapping: at every moment it says what is true, also when its writer is
killed at that moment."""

from __future__ import annotations

import errno
import mmap
import os
import random
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import pytest

from bccnd.leaf import layout
from bccnd.leaf.layout import DATAGRAMS, HELD, PACKET
from bccnd.net.udp import pack_address
from tests.leaf.books import book, got
from tests.leaf.test_packets import SO_TIMESTAMPNS, SOCKADDR_IN, SOCKADDR_IN6, take, udp
from tests.leaf.twins import builds, each
from tests.support import PATIENCE, TINY, cannot_here, kernel_drops

#: each of both builds, and each after the other
PAIRS: Final = [(one, other) for one in builds("ledger") for other in builds("ledger")]
#: times that a writer is to be killed in the midst of something; more with BCCND_ROUNDS
HITS: Final = int(os.environ.get("BCCND_ROUNDS", "25"))
#: and attempts at that, at most
ROUNDS: Final = 40 * HITS


@contextmanager
def pair(size: int = 0) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's connection, ours first; the kernel keeps ``size`` bytes for it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        if size:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        yield ours, theirs


def read(sock: socket.socket) -> list[bytes]:
    """All packets that are there."""
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(sock.recv(1 << 20))
    return found


# -- numbers


@each("ledger")
def test_an_input_is_worked_on_from_its_beginning_to_its_end(ledger: Any) -> None:
    with book() as (memory, reader):
        one = ledger.Ledger(memory)
        assert one.serial == 0
        for serial, (kind, number) in enumerate([(HELD, 5), (HELD, 2**62), (HELD, 0)], 1):
            one.begin(kind, number)
            assert one.serial == serial
            assert layout.unfinished(reader) == layout.Unfinished(kind, number, serial, 0.0, 0)
            one.say_when(1.25 * serial)
            assert layout.unfinished(reader) == layout.Unfinished(kind, number, serial, 1.25 * serial, 0)
            one.finish()
            assert layout.unfinished(reader) is None
            assert one.serial == serial
        one.finish()
        assert layout.unfinished(reader) is None


@each("ledger")
def test_what_clients_have_got_counts_for_one_input(ledger: Any) -> None:
    with book() as (memory, reader):
        one = ledger.Ledger(memory)
        one.assign(5, 0)
        one.assign(900, layout.MAX_SLOTS - 1)
        layout.put_slot(memory, 0, layout.Slot(77, 0, 0, 0))
        one.begin(HELD, 1)
        assert (one.counted(5), one.counted(900)) == (0, 0)
        one.count(5, 1)
        one.count(5, 2)
        one.count(900, 7)
        assert (one.counted(5), one.counted(900)) == (3, 7)
        assert layout.slot(reader, 0) == layout.Slot(77, 1, 3, 0)
        assert layout.slot(reader, layout.MAX_SLOTS - 1) == layout.Slot(0, 1, 7, 0)
        one.finish()
        one.begin(HELD, 1)
        assert (one.counted(5), one.counted(900)) == (0, 0)
        one.count(5, 1)
        assert layout.slot(reader, 0) == layout.Slot(77, 2, 1, 0)
        assert layout.slot(reader, layout.MAX_SLOTS - 1) == layout.Slot(0, 1, 7, 0)


@each("ledger")
def test_the_seq_that_a_publisher_had_before_is_known_while_his_input_is_worked_on(ledger: Any) -> None:
    with book() as (memory, reader):
        one = ledger.Ledger(memory)
        one.assign(5, 3)
        one.begin(HELD, 1, 5)
        one.say_seq(5, 2**64 - 1)
        found = layout.unfinished(reader)
        assert found is not None
        assert found.seq == 0
        assert layout.slot(reader, 3).seq == 2**64 - 1
        for fd, seq in ((5, 2**64 - 1), (6, 0), (-1, 0)):
            one.begin(HELD, 1, fd)
            found = layout.unfinished(reader)
            assert found is not None
            assert found.seq == seq


@each("ledger")
def test_a_slot_can_be_given_to_another_and_who_has_none_is_not_written_down(ledger: Any) -> None:
    with book() as (memory, reader):
        one = ledger.Ledger(memory)
        for fd, slot in ((-1, 0), (3, -1), (3, layout.MAX_SLOTS)):
            with pytest.raises(IndexError):
                one.assign(fd, slot)
        one.begin(HELD, 1)
        before = reader[: layout.PACKETS]
        for fd in (-1, 0, 3, 70_000):
            one.count(fd, 5)
            one.say_seq(fd, 5)
            one.release(fd)
            assert one.counted(fd) == 0
        assert reader[: layout.PACKETS] == before
        one.assign(3, 1)
        one.count(3, 2)
        one.release(3)
        one.assign(70_000, 1)
        assert one.counted(3) == 0
        assert one.counted(70_000) == 2
        layout.put_slot(memory, 1, layout.Slot(0, 0, 0, 0))
        one.count(70_000, 1)
        assert layout.slot(reader, 1) == layout.Slot(0, 1, 1, 0)


# -- datagrams in


@each("ledger")
def test_a_batch_stands_in_the_ledger_as_it_came(ledger: Any) -> None:
    sizes = (0, 1, 100, 1500, 1501, 1502, 9000, 0, 3)
    with book() as (memory, reader), udp() as (ours, theirs):
        one = ledger.Ledger(memory)
        receiver = ledger.Receiver(one, 2, "Ost/ü".encode(), ours.fileno(), 1500, SOCKADDR_IN)
        for size in sizes:
            theirs.send(os.urandom(size))
        (batch,) = take(receiver, len(sizes))
        assert [len(each) for each in batch] == [min(size, 1501) for size in sizes]
        found = layout.unfinished(reader)
        assert found is not None
        assert (found.kind, found.number, found.now, found.seq) == (DATAGRAMS, 2, 0.0, 0)
        assert found.label == "Ost/ü".encode()
        assert list(found.datagrams) == batch
        assert found.name_size == SOCKADDR_IN
        assert found.names == bytes(receiver.names[: SOCKADDR_IN * len(sizes)])
        assert struct.unpack_from("!2xH4s", found.names, SOCKADDR_IN * 8) == (
            theirs.getsockname()[1],
            socket.inet_aton("127.0.0.1"),
        )
        one.say_when(12.5)
        later = layout.unfinished(reader)
        assert later == found._replace(now=12.5)
        one.finish()
        assert layout.unfinished(reader) is None
        # What came before does not show through, and what there is nothing of is no input.
        theirs.send(b"alone")
        assert take(receiver, 1) == [[b"alone"]]
        found = layout.unfinished(reader)
        assert found is not None
        assert found.datagrams == (b"alone",)
        assert len(found.names) == SOCKADDR_IN
        one.finish()
        serial = one.serial
        with pytest.raises(BlockingIOError):
            receiver.receive()
        assert layout.unfinished(reader) is None
        assert one.serial == serial + 1


@each("ledger")
def test_a_full_batch_and_the_one_behind_it(ledger: Any) -> None:
    sent = [b"%d" % number for number in range(100)]
    with book() as (memory, reader), udp() as (ours, theirs):
        one = ledger.Ledger(memory)
        receiver = ledger.Receiver(one, 0, b"s", ours.fileno(), 1500, SOCKADDR_IN)
        for each_ in sent:
            theirs.send(each_)
        seen: list[bytes] = []
        for size in (64, 36):
            assert len(receiver.receive()) == size
            found = layout.unfinished(reader)
            assert found is not None
            assert len(found.datagrams) == size
            seen += found.datagrams
            one.finish()
        assert seen == sent


@each("ledger")
def test_an_input_that_was_begun_and_of_which_nothing_has_come_is_none(ledger: Any) -> None:
    with book() as (memory, reader), udp() as (ours, theirs), pair() as (client, _):
        one = ledger.Ledger(memory)
        receiver = ledger.Receiver(one, 0, b"s", ours.fileno(), 1500, SOCKADDR_IN)
        inbox = ledger.Inbox(one)
        theirs.send(b"before")
        take(receiver, 1)
        for _ in range(2):
            with suppress(BlockingIOError):
                receiver.receive()
        # As it is between our word and the kernel's.
        one.begin(DATAGRAMS, 0)
        assert layout.unfinished(reader) is None
        with suppress(BlockingIOError):
            inbox.receive(client.fileno(), 1)
        one.begin(PACKET, 1)
        assert layout.unfinished(reader) is None


@each("ledger")
def test_stamp_and_names_of_both_families_come_again(ledger: Any) -> None:
    if not socket.has_ipv6:
        cannot_here("no IPv6")
    with book() as (memory, reader), udp() as (ours, theirs), udp(socket.AF_INET6) as (ours6, theirs6):
        one = ledger.Ledger(memory)
        receiver = ledger.Receiver(one, 0, b"four", ours.fileno(), 1500, SOCKADDR_IN)
        receiver6 = ledger.Receiver(one, 1, b"six", ours6.fileno(), 65_507, SOCKADDR_IN6)
        ours6.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        theirs.send(b"x" * 1500)
        take(receiver, 1)
        found = layout.unfinished(reader)
        assert found is not None
        assert (found.label, found.datagrams, found.stamps) == (b"four", (b"x" * 1500,), (0,))
        one.finish()
        before = time.time_ns()
        theirs6.send(b"y" * 60_000)
        theirs6.send(b"z")
        take(receiver6, 2)
        found = layout.unfinished(reader)
        assert found is not None
        assert (found.label, found.number) == (b"six", 1)
        assert found.datagrams == (b"y" * 60_000, b"z")
        assert found.stamps == (receiver6.stamp_ns(), 0)
        assert before - 10_000_000 < found.stamps[0] < time.time_ns()
        assert found.name_size == SOCKADDR_IN6
        assert found.names == bytes(receiver6.names[: 2 * SOCKADDR_IN6])
        port, address = struct.unpack_from("!2xH4x16s", found.names, SOCKADDR_IN6)
        assert (port, address) == (theirs6.getsockname()[1], socket.inet_pton(socket.AF_INET6, "::1"))
        one.finish()
        receiver6.stamp_all(True)
        for _ in range(3):
            theirs6.send(b"late")
        take(receiver6, 3)
        found = layout.unfinished(reader)
        assert found is not None
        assert found.stamps == tuple(receiver6.stamp_ns(number) for number in range(3))
        assert 0 < found.stamps[0] <= found.stamps[1] <= found.stamps[2] < time.time_ns()
        one.finish()
        # One segment's batch leaves the other's where it is.
        theirs.send(b"again")
        take(receiver, 1)
        found = layout.unfinished(reader)
        assert found is not None
        assert (found.label, found.datagrams) == (b"four", (b"again",))


@each("ledger")
def test_what_was_handed_out_is_a_copy(ledger: Any) -> None:
    with book() as (memory, reader), udp() as (ours, theirs):
        one = ledger.Ledger(memory)
        receiver = ledger.Receiver(one, 0, b"s", ours.fileno(), 1500, SOCKADDR_IN)
        theirs.send(b"first")
        (batch,) = take(receiver, 1)
        found = layout.unfinished(reader)
        theirs.send(b"XXXXX")
        take(receiver, 1)
        assert batch == [b"first"]
        assert found is not None
        assert found.datagrams == (b"first",)


# -- packets in


@each("ledger")
def test_a_packet_from_a_client_is_an_input_until_it_is_worked_through(ledger: Any) -> None:
    with book() as (memory, reader), pair() as (ours, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        one = ledger.Ledger(memory)
        one.assign(ours.fileno(), 9)
        one.say_seq(ours.fileno(), 1234)
        inbox = ledger.Inbox(one)
        for serial, packet in enumerate([b"MSG a\0b", b"x" * 400_000, b"\0", b"y" * 409_600], 1):
            theirs.send(packet)
            assert inbox.receive(ours.fileno(), 42) == len(packet)
            assert bytes(inbox.view[: len(packet)]) == packet
            assert layout.unfinished(reader) == layout.Unfinished(PACKET, 42, serial, 0.0, 1234, packet=packet)
            one.finish()
            assert layout.unfinished(reader) is None


@each("ledger")
def test_one_that_is_too_large_shows_by_one_byte(ledger: Any) -> None:
    with book() as (memory, reader), pair() as (ours, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        inbox = ledger.Inbox(ledger.Ledger(memory))
        for size in (409_601, 409_602, 420_000):
            theirs.send(b"z" * size)
            theirs.send(b"next")
            assert inbox.receive(ours.fileno(), 1) == layout.INBOX_SIZE == 409_601
            found = layout.unfinished(reader)
            assert found is not None
            assert found.packet == b"z" * 409_601
            assert inbox.receive(ours.fileno(), 1) == 4


@each("ledger")
def test_an_empty_packet_is_one_too(ledger: Any) -> None:
    with book() as (memory, reader), pair() as (ours, theirs):
        one = ledger.Ledger(memory)
        inbox = ledger.Inbox(one)
        theirs.send(b"something")
        inbox.receive(ours.fileno(), 7)
        theirs.send(b"")
        assert inbox.receive(ours.fileno(), 7) == 0
        assert layout.unfinished(reader) == layout.Unfinished(PACKET, 7, 2, 0.0, 0, packet=b"")
        one.finish()
        theirs.close()
        # The end looks the same; it takes a look at the socket to tell.
        assert inbox.receive(ours.fileno(), 7) == 0


@each("ledger")
def test_where_nothing_comes_nothing_is_worked_on(ledger: Any) -> None:
    with book() as (memory, reader), pair() as (ours, theirs):
        inbox = ledger.Inbox(ledger.Ledger(memory))
        theirs.send(b"x")
        inbox.receive(ours.fileno(), 7)
        with pytest.raises(BlockingIOError):
            inbox.receive(ours.fileno(), 7)
        assert layout.unfinished(reader) is None
        ours.send(b"unread")
        theirs.close()
        with pytest.raises(ConnectionResetError):
            inbox.receive(ours.fileno(), 7)
        assert layout.unfinished(reader) is None
        with pytest.raises(OSError) as failed:
            inbox.receive(-1, 7)
        assert failed.value.errno == errno.EBADF
        assert layout.unfinished(reader) is None


# -- packets out


@each("ledger")
def test_one_packet_is_noted_with_its_weight_when_it_went_and_only_then(ledger: Any) -> None:
    with book() as (memory, reader), pair(TINY) as (ours, theirs):
        one = ledger.Ledger(memory)
        one.assign(ours.fileno(), 4)
        sender = ledger.Sender(one)
        one.begin(HELD, 1)
        expected = 0
        for weight in (1, 1, 60, 3):
            assert sender.one(ours.fileno(), b"p%d" % weight, weight) == 0
            expected += weight
            assert layout.slot(reader, 4) == layout.Slot(0, 1, expected, 0)
            assert layout.armed(reader) is None
        assert read(theirs) == [b"p1", b"p1", b"p60", b"p3"]
        assert sender.one(ours.fileno(), b"default") == 0
        expected += 1
        assert sender.one(ours.fileno(), b"x" * 100_000, 9) == errno.EMSGSIZE
        while (failed := sender.one(ours.fileno(), b"x" * 500, 2)) == 0:
            expected += 2
        assert failed == errno.EAGAIN
        assert sender.one(ours.fileno(), b"x" * 500, 7) == errno.EAGAIN
        assert one.counted(ours.fileno()) == got(reader, 4) == expected
        read(theirs)
        theirs.close()
        assert sender.one(ours.fileno(), b"x", 5) == errno.EPIPE
        assert got(reader, 4) == expected
        one.finish()
        one.begin(HELD, 1)
        assert got(reader, 4) == one.counted(ours.fileno()) == 0
        assert sender.one(ours.fileno(), b"x", 5) == errno.EPIPE
        assert got(reader, 4) == 0


@each("ledger")
@pytest.mark.parametrize("count", [1, 2, 100, layout.MAX_PACKETS])
def test_of_many_packets_it_is_noted_how_many_went(ledger: Any, count: int) -> None:
    packets = [b"%d" % number for number in range(count)]
    with book() as (memory, reader), pair() as (ours, theirs), pair(TINY) as (slow, behind):
        one = ledger.Ledger(memory)
        one.assign(ours.fileno(), 0)
        one.assign(slow.fileno(), 1)
        sender = ledger.Sender(one)
        one.begin(HELD, 1)
        sender.load(packets)
        expected: dict[int, list[bytes]] = {0: [], 1: []}
        for _ in range(2):
            for slot, sock, reading in ((0, ours, theirs), (1, slow, behind)):
                before = len(expected[slot])
                sent = sender.send(sock.fileno())
                # The kernel keeps so many packets for one at most, however small they are.
                assert sent == count or slot == 1 or count > 200
                expected[slot] += packets[:sent]
                assert got(reader, slot) == before + sent
                assert layout.armed(reader) is None
                if slot == 0:
                    assert read(reading)[:sent] == packets[:sent]
        assert read(behind) == expected[1]


@each("ledger")
def test_what_does_not_go_in_the_midst_of_many_ends_them(ledger: Any) -> None:
    packets = [b"a", b"b", b"x" * 300_000, b"c"]
    with book() as (memory, reader), pair() as (ours, theirs):
        one = ledger.Ledger(memory)
        one.assign(ours.fileno(), 0)
        sender = ledger.Sender(one)
        one.begin(HELD, 1)
        sender.load(packets)
        assert sender.send(ours.fileno()) == 2
        assert got(reader, 0) == 2
        assert sender.one(ours.fileno(), packets[2]) == errno.EMSGSIZE
        assert sender.one(ours.fileno(), packets[3]) == 0
        assert got(reader, 0) == 3
        assert read(theirs) == [b"a", b"b", b"c"]


@each("ledger")
def test_more_than_there_is_room_for_is_refused(ledger: Any) -> None:
    with book() as (memory, _), pair() as (ours, theirs):
        sender = ledger.Sender(ledger.Ledger(memory))
        sender.load([b"x"])
        with pytest.raises(ValueError, match="more packets"):
            sender.load([b"y"] * (layout.MAX_PACKETS + 1))
        assert sender.send(ours.fileno()) == 1
        assert read(theirs) == [b"x"]


@each("ledger")
def test_who_has_no_slot_is_sent_to_as_ever_and_nothing_is_noted(ledger: Any) -> None:
    with book() as (memory, reader), pair() as (ours, theirs), pair() as (other, behind):
        one = ledger.Ledger(memory)
        one.assign(other.fileno(), 0)
        sender = ledger.Sender(one)
        one.begin(HELD, 1)
        sender.one(other.fileno(), b"x")
        before = reader[: layout.AT_ARMED], reader[layout.SLOTS : layout.PACKETS]
        assert sender.one(ours.fileno(), b"a", 5) == 0
        assert sender.waited(ours.fileno(), b"b", 5, 100) == 0
        sender.load([b"c", b"d"])
        assert sender.send(ours.fileno()) == 2
        assert sender.one(ours.fileno(), b"x" * 500_000) == errno.EMSGSIZE
        assert sender.waited(ours.fileno(), b"x" * 500_000, 1, 100) == errno.EMSGSIZE
        assert (reader[: layout.AT_ARMED], reader[layout.SLOTS : layout.PACKETS]) == before
        assert layout.armed(reader) is None
        assert read(theirs) == [b"a", b"b", b"c", b"d"]
        assert read(behind) == [b"x"]
        theirs.close()
        assert sender.one(ours.fileno(), b"a") == errno.EPIPE
        assert sender.send(ours.fileno()) == 0


@each("ledger")
def test_of_what_has_waited_it_is_noted_that_it_went_until_something_else_is_sent(ledger: Any) -> None:
    with book() as (memory, reader), pair(TINY) as (ours, theirs), pair() as (other, _), pair() as (nobody, _):
        one = ledger.Ledger(memory)
        one.assign(ours.fileno(), 6)
        one.assign(other.fileno(), 7)
        sender = ledger.Sender(one)
        assert sender.waited(ours.fileno(), b"first", 1, 100) == 0
        assert layout.armed(reader) == layout.Armed(6, 1, 1, 100)
        assert sender.waited(ours.fileno(), b"second", 12, 200) == 0
        assert layout.armed(reader) == layout.Armed(6, 12, 12, 200)
        assert sender.waited(ours.fileno(), b"x" * 100_000, 12, 300) == errno.EMSGSIZE
        assert layout.armed(reader) == layout.Armed(6, 0, 0, 300)
        while (failed := sender.waited(ours.fileno(), b"x" * 500, 1, 400)) == 0:
            assert layout.armed(reader) == layout.Armed(6, 1, 1, 400)
        assert failed == errno.EAGAIN
        assert layout.armed(reader) == layout.Armed(6, 0, 0, 400)
        read(theirs)
        assert sender.waited(ours.fileno(), b"third", 1, 500) == 0
        # No input that comes meanwhile makes this forgotten, nor who is not written down,
        one.begin(HELD, 1)
        sender.load([b"x"])
        sender.send(nobody.fileno())
        armed = layout.armed(reader)
        assert armed is None or armed == layout.Armed(6, 1, 1, 500)
        # but who is.
        assert sender.one(other.fileno(), b"x") == 0
        assert layout.armed(reader) is None
        assert layout.slot(reader, 6) == layout.Slot(0, 0, 0, 0)


@each("ledger")
def test_who_comes_anew_is_told_of_nothing_that_was_sent_before(ledger: Any) -> None:
    with book() as (memory, reader), pair() as (ours, theirs):
        one = ledger.Ledger(memory)
        one.assign(ours.fileno(), 6)
        sender = ledger.Sender(one)
        sender.load([b"a", b"b"])
        sender.send(ours.fileno())
        sender.waited(ours.fileno(), b"c", 1, 100)
        sender = ledger.Sender(ledger.Ledger(memory))
        armed = layout.armed(reader)
        assert armed is None or not armed.taken
        assert read(theirs) == [b"a", b"b", b"c"]


# -- both builds


def words(memory: mmap.mmap) -> bytes:
    """All that is no address: what is told by numbers, and what the kernel has noted."""

    def part(at: int, size: int) -> bytes:
        return memory[at : at + size]

    start = layout.SEGMENT + layout.SEGMENT_SIZE
    headers = [
        *map(layout.header_at, range(layout.MAX_PACKETS + 1)),
        layout.INBOX,
        *(start + layout.SEGMENT_HEADERS + layout.HEADER * number for number in range(layout.BATCH)),
    ]
    return b"".join(
        [
            *(part(0, layout.SINGLE_HEADER), part(layout.SLOTS, layout.PACKETS - layout.SLOTS)),
            part(layout.INBOX_DATA, 10_000),
            *(part(start, layout.LABEL), part(start + layout.SEGMENT_DATA, 200_000)),
            *(part(header + layout.DONE, 4) for header in headers),
        ]
    )


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda one: one.__name__)
def test_both_builds_write_the_same_and_go_on_where_the_other_has_ended(first: Any, second: Any) -> None:
    written: list[bytes] = []
    for modules in ((first, first), (first, second)):
        with ExitStack() as open_:
            memory, reader = open_.enter_context(book())
            fast, fast_end = open_.enter_context(pair())
            slow, _ = open_.enter_context(pair(TINY))
            ours, theirs = open_.enter_context(udp())
            for turn, module in enumerate(modules):
                one = module.Ledger(memory)
                assert one.serial == turn * 4
                one.assign(fast.fileno(), 11)
                one.assign(slow.fileno(), 12)
                assert one.counted(fast.fileno()) == turn * 4
                sender, inbox = module.Sender(one), module.Inbox(one)
                receiver = module.Receiver(one, 1, b"name", ours.fileno(), 1500, SOCKADDR_IN)
                for size in (0, 10, 2000):
                    theirs.send(b"d" * size)
                take(receiver, 3)
                one.say_when(3.5)
                one.say_seq(fast.fileno(), 99)
                one.finish()
                fast_end.send(b"MSG x\0y")
                inbox.receive(fast.fileno(), 5)
                sender.load([b"1", b"22", b"x" * 300])
                sender.send(fast.fileno())
                for _ in range(8):
                    sender.send(slow.fileno())
                sender.one(fast.fileno(), b"33", 6)
                one.count(slow.fileno(), 2)
                one.finish()
                with suppress(BlockingIOError):
                    inbox.receive(fast.fileno(), 5)
                one.begin(HELD, 5, fast.fileno())
                sender.load([b"4"] * 3)
                sender.send(fast.fileno())
                sender.one(fast.fileno(), b"5", 1)
                sender.waited(slow.fileno(), b"w", 2, 77)
            assert (found := layout.unfinished(reader)) is not None
            assert found == layout.Unfinished(HELD, 5, 8, 0.0, 99)
            written.append(words(reader))
    assert written[0] == written[1]


# -- killed


@contextmanager
def killed(
    reader: mmap.mmap,
    work: Callable[[], object],
    meanwhile: Callable[[], object],
    chance: random.Random,
    seconds: float = 0.004,
) -> Iterator[None]:
    """Have another process work until it is killed, at no particular moment once it has begun an input. ``meanwhile``
    is done until then."""
    before = layout.number_at(reader, layout.AT_SERIAL)
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            work()
        os._exit(1)
    end = time.monotonic() + PATIENCE
    try:
        while layout.number_at(reader, layout.AT_SERIAL) == before and time.monotonic() < end:
            meanwhile()
        end = time.monotonic() + chance.random() * seconds
        while time.monotonic() < end:
            meanwhile()
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it has ended by itself"
    yield


def spend_some_time() -> None:
    """As long as it takes to judge what has come."""
    sum(range(1000))


_MARK: Final = struct.Struct("=QI")


@each("ledger")
@pytest.mark.parametrize("filled", [False, True], ids=["room", "full"])
def test_whoever_is_killed_while_he_sends_has_sent_what_the_ledger_says(ledger: Any, filled: bool) -> None:
    chance = random.Random(1)
    count = 4
    with book() as (memory, reader), ExitStack() as open_:
        pairs = [open_.enter_context(pair(TINY if filled and number % 2 else 0)) for number in range(count)]
        arrived: list[list[tuple[int, int]]] = [[] for _ in pairs]

        def drain(most: int) -> None:
            for number, (_, theirs) in enumerate(pairs):
                with suppress(BlockingIOError):
                    for _ in range(most):
                        packet = theirs.recv(1 << 16)
                        serial, index = _MARK.unpack_from(packet)
                        for message in range(len(packet) // 400 + 1 if len(packet) > 400 else 1):
                            arrived[number].append((serial, index + message))

        def work() -> None:
            one = ledger.Ledger(memory)
            sender = ledger.Sender(one)
            for number, (ours, _) in enumerate(pairs):
                one.assign(ours.fileno(), number)
            while True:
                one.begin(HELD, 1)
                serial = one.serial
                for ours, _ in pairs:
                    # Two alone, four with one call, a batch of three, and one more alone.
                    fd, at = ours.fileno(), 0
                    for _ in range(2):
                        at += not sender.one(fd, _MARK.pack(serial, at))
                    sender.load([_MARK.pack(serial, at + more) for more in range(4)])
                    at += sender.send(fd)
                    at += 3 * (not sender.one(fd, _MARK.pack(serial, at).ljust(1000, b"b"), 3))
                    sender.one(fd, _MARK.pack(serial, at))
                one.finish()

        halfway = 0
        for _ in range(ROUNDS):
            if halfway == HITS:
                break
            with killed(reader, work, lambda: drain(2 if filled else 1000), chance):
                drain(1_000_000)
                serial = layout.number_at(reader, layout.AT_SERIAL)
                found = layout.unfinished(reader)
                assert found is None or found.serial == serial
                parts = [[index for its, index in one if its == serial] for one in arrived]
                for number, part in enumerate(parts):
                    assert part == list(range(len(part))), "out of order, or twice"
                    assert got(reader, number) == len(part)
                halfway += any(parts) and len(set(map(len, parts))) > 1
                for one in arrived:
                    assert one == sorted(one)
                    one.clear()
            # As the next one would.
            layout.put_number(memory, layout.AT_ARMED, 0)
        assert halfway == HITS


@each("ledger")
def test_whoever_is_killed_while_he_receives_leaves_what_he_had_taken(ledger: Any) -> None:
    chance = random.Random(2)
    unfinished = handled = 0
    with book() as (memory, reader), udp() as (ours, theirs), pair() as (told, taken):
        told.setblocking(True)
        sent = 0

        def work() -> None:
            one = ledger.Ledger(memory)
            receiver = ledger.Receiver(one, 3, b"s", ours.fileno(), 1500, SOCKADDR_IN)
            while True:
                with suppress(BlockingIOError):
                    batch = receiver.receive()
                    one.say_when(1.0)
                    spend_some_time()
                    told.send(b"%d %b" % (one.serial, b",".join(batch)))
                    one.finish()

        for _ in range(ROUNDS):
            if unfinished == HITS:
                break
            first = sent
            for sent in range(first, first + 150):  # so many as the kernel keeps in any case
                theirs.send(b"%d" % sent + b"." * (sent % 7))
            sent += 1
            with killed(reader, work, lambda: None, chance, 0.0005):
                batches = {int(line.split()[0]): line.split()[1].split(b",") for line in read(taken)}
                found = layout.unfinished(reader)
                if found is not None:
                    unfinished += 1
                    assert batches.setdefault(found.serial, list(found.datagrams)) == list(found.datagrams)
                    assert len(found.names) == SOCKADDR_IN * len(found.datagrams)
                left = []
                with suppress(BlockingIOError):
                    while True:
                        left.append(ours.recv(2000))
                got_ = [one for serial in sorted(batches) for one in batches[serial]] + left
                handled += len(batches)
                assert got_ == [b"%d" % number + b"." * (number % 7) for number in range(first, sent)]
    assert unfinished == HITS
    assert handled > unfinished


@each("ledger")
def test_so_does_whoever_is_killed_while_he_takes_packets_of_clients(ledger: Any) -> None:
    chance = random.Random(3)
    unfinished = 0
    with book() as (memory, reader), pair() as (ours, theirs), pair() as (told, taken):
        told.setblocking(True)
        sent = 0
        before: list[bytes] = []

        def more() -> None:
            nonlocal sent
            with suppress(BlockingIOError):
                theirs.send(b"%d" % sent if sent % 5 else b"")
                sent += 1

        def work() -> None:
            one = ledger.Ledger(memory)
            one.assign(ours.fileno(), 2)
            one.say_seq(ours.fileno(), 77)
            inbox = ledger.Inbox(one)
            while True:
                with suppress(BlockingIOError):
                    size = inbox.receive(ours.fileno(), 8)
                    spend_some_time()
                    told.send(b"%d " % one.serial + bytes(inbox.view[:size]))
                    one.finish()

        def both() -> None:
            more()
            before.extend(read(taken))

        for _ in range(ROUNDS):
            if unfinished == HITS:
                break
            first = sent
            more()
            with killed(reader, work, both, chance):
                packets = dict(line.split(b" ", 1) for line in (*before, *read(taken)))
                before.clear()
                found = layout.unfinished(reader)
                if found is not None:
                    unfinished += 1
                    assert (found.number, found.seq) == (8, 77)
                    assert packets.setdefault(b"%d" % found.serial, found.packet) == found.packet
                in_order = sorted(packets, key=int)
                assert [*(packets[serial] for serial in in_order), *read(ours)] == [
                    b"%d" % number if number % 5 else b"" for number in range(first, sent)
                ]
    assert unfinished == HITS


# -- to a segment


@each("ledger")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_what_is_cast_is_noted_until_the_next_input_of_a_client(ledger: Any, family: socket.AddressFamily) -> None:
    with book() as (memory, reader), udp(family) as (ours, theirs):
        one = ledger.Ledger(memory)
        name = ours.getsockname()
        caster = ledger.Caster(one, 2, theirs.fileno(), pack_address(name))
        deaf = ledger.Caster(one, 3, theirs.fileno(), pack_address(name)[:4])
        for kind in (PACKET, HELD):
            one.begin(kind, 7)
            assert not layout.was_cast(reader, 2)
            assert not layout.was_cast(reader, 3)
            assert caster.cast(b"out") == 0
            assert deaf.cast(b"nowhere") != 0
            assert layout.was_cast(reader, 2)
            assert not layout.was_cast(reader, 3)
            assert ours.recv(100) == b"out"
            one.finish()
        one.begin(DATAGRAMS, 1)
        assert layout.was_cast(reader, 2)
        with pytest.raises(IndexError):
            ledger.Caster(one, layout.MAX_SEGMENTS, theirs.fileno(), b"")
        with pytest.raises(IndexError):
            ledger.Caster(one, 0, theirs.fileno(), b"x" * (layout.NAME + 1))


@each("ledger")
def test_whoever_is_killed_while_he_broadcasts_has_sent_what_the_ledger_says(ledger: Any) -> None:
    chance = random.Random(4)
    unfinished = cast = 0
    with book() as (memory, reader), udp() as (ours, theirs):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        address = pack_address(ours.getsockname())
        last = seen = overflown = 0

        def work() -> None:
            one = ledger.Ledger(memory)
            casters = [ledger.Caster(one, number, theirs.fileno(), address) for number in range(2)]
            while True:
                one.begin(PACKET if one.serial % 2 else HELD, 1)
                for caster in casters:
                    caster.cast(b"%d" % one.serial)
                one.finish()
                one.begin(DATAGRAMS, 0)
                one.finish()

        def drain() -> None:
            nonlocal last, seen
            for datagram in read(ours):
                seen = seen + 1 if int(datagram) == last else 1
                last = int(datagram)

        for _ in range(ROUNDS):
            if unfinished == HITS:
                break
            with killed(reader, work, drain, chance):
                drain()
                before, overflown = overflown, kernel_drops(ours)
                if before != overflown:  # we were kept from reading, and what is missing may have been sent
                    continue
                serial = layout.number_at(reader, layout.AT_SERIAL)
                if layout.number_at(reader, layout.AT_OPEN) and layout.number_at(reader, layout.AT_KIND) != DATAGRAMS:
                    unfinished += 1
                    went = [layout.was_cast(reader, number) for number in range(2)]
                    assert went == [number < (seen if last == serial else 0) for number in range(2)]
                    cast += went[0]
    assert unfinished == HITS
    assert cast
