"""The in-flight state on real sockets and in a second mapping: it is right at any moment, also after a kill."""

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
from functools import partial
from itertools import count, islice
from typing import Final

import pytest

from bccnd.native.buffers import scan
from bccnd.native.memory import inflight
from bccnd.native.memory import inflight_layout as layout
from bccnd.native.memory.inflight_layout import DATAGRAMS, PACKET, RETRY
from bccnd.net.segment_opening import pack_address
from tests.native.inflight_memory import new_memory, received
from tests.native.sockets import SO_TIMESTAMPNS, SOCKADDR_IN, SOCKADDR_IN6, pair, read, take, udp
from tests.support import PATIENCE, TINY, examples, kernel_drops

pytestmark = pytest.mark.skipif(not scan.COMPILED, reason="a plain build records no input")

#: times that a writer is to be killed while an input is in progress; more with BCCND_ROUNDS
HITS: Final = int(os.environ.get("BCCND_ROUNDS", examples(25)))
#: and attempts at that, at most
ROUNDS: Final = 100 * HITS


@contextmanager
def opened() -> Iterator[tuple[inflight.InflightState, mmap.mmap]]:
    """Yield a new state, and its memory as another process maps it."""
    with new_memory() as (memory, reader):
        yield inflight.InflightState(memory), reader


def in_progress(reader: mmap.mmap) -> layout.InflightInput:
    """Return the input in progress; there must be one."""
    found = layout.read_unfinished(reader)
    assert found is not None, "no input in progress"
    return found


def test_input_is_unfinished_from_begin_to_finish() -> None:
    with opened() as (one, reader):
        assert one.serial == 0
        for serial, (kind, number) in enumerate([(RETRY, 5), (RETRY, 2**62), (RETRY, 0)], 1):
            one.begin(kind, number)
            assert one.serial == serial
            assert layout.read_unfinished(reader) == layout.InflightInput(kind, number, serial, 0.0, 0)
            one.set_time(1.25 * serial)
            assert layout.read_unfinished(reader) == layout.InflightInput(kind, number, serial, 1.25 * serial, 0)
            one.finish()
            assert layout.read_unfinished(reader) is None
            assert one.serial == serial
        one.finish()
        assert layout.read_unfinished(reader) is None


def test_counts_of_clients_are_per_input() -> None:
    with opened() as (one, reader):
        one.assign(5, 0)
        one.assign(900, layout.MAX_SLOTS - 1)
        layout.write_slot(one.memory, 0, layout.ClientSlot(77, 0, 0, 0))
        one.begin(RETRY, 1)
        assert (one.counted(5), one.counted(900)) == (0, 0)
        one.count(5, 1)
        one.count(5, 2)
        one.count(900, 7)
        assert (one.counted(5), one.counted(900)) == (3, 7)
        assert layout.read_slot(reader, 0) == layout.ClientSlot(77, 1, 3, 0)
        assert layout.read_slot(reader, layout.MAX_SLOTS - 1) == layout.ClientSlot(0, 1, 7, 0)
        one.finish()
        one.begin(RETRY, 1)
        one.count(5, 1)
        assert (one.counted(5), one.counted(900)) == (1, 0)
        assert layout.read_slot(reader, 0) == layout.ClientSlot(77, 2, 1, 0)
        assert layout.read_slot(reader, layout.MAX_SLOTS - 1) == layout.ClientSlot(0, 1, 7, 0)


def test_input_records_the_next_seq_of_its_publisher() -> None:
    with opened() as (one, reader):
        one.assign(5, 3)
        one.begin(RETRY, 1, 5)
        one.set_next_seq(5, 2**64 - 1)
        assert in_progress(reader).seq == 0
        assert layout.read_slot(reader, 3).seq == 2**64 - 1
        for fd, seq in ((5, 2**64 - 1), (6, 0), (-1, 0)):
            one.begin(RETRY, 1, fd)
            assert in_progress(reader).seq == seq


def test_slot_is_reassigned_and_a_client_without_one_is_not_recorded() -> None:
    with opened() as (one, reader):
        for fd, slot in ((-1, 0), (3, -1), (3, layout.MAX_SLOTS)):
            with pytest.raises(IndexError):
                one.assign(fd, slot)
        one.begin(RETRY, 1)
        before = reader[: layout.PACKETS]
        for fd in (-1, 0, 3, 70_000):
            one.count(fd, 5)
            one.set_next_seq(fd, 5)
            one.release(fd)
            assert one.counted(fd) == 0
        assert reader[: layout.PACKETS] == before
        one.assign(3, 1)
        one.count(3, 2)
        one.release(3)
        one.assign(70_000, 1)
        assert one.counted(3) == 0
        assert one.counted(70_000) == 2
        layout.write_slot(one.memory, 1, layout.ClientSlot(0, 0, 0, 0))
        one.count(70_000, 1)
        assert layout.read_slot(reader, 1) == layout.ClientSlot(0, 1, 1, 0)


# -- datagrams in


@pytest.mark.parametrize(
    ("family", "name_size"), [(socket.AF_INET, SOCKADDR_IN), (socket.AF_INET6, SOCKADDR_IN6)], ids=["IPv4", "IPv6"]
)
def test_batch_is_recorded_as_received(family: socket.AddressFamily, name_size: int) -> None:
    sizes = (0, 1, 100, 1500, 1501, 1502, 9000, 0, 3)
    with opened() as (one, reader), udp(family) as (ours, theirs), udp() as (elsewhere, stranger):
        receiver = inflight.Receiver(one, 2, "Ost/ü".encode(), ours.fileno(), 1500, name_size)
        other = inflight.Receiver(one, 1, b"other", elsewhere.fileno(), 65_507, SOCKADDR_IN)
        # Segments have batches of their own.
        stranger.send(b"y" * 60_000)
        assert take(other, 1) == [[b"y" * 60_000]]
        found = in_progress(reader)
        assert (found.number, found.label, found.datagrams, found.stamps) == (1, b"other", (b"y" * 60_000,), (0,))
        one.finish()
        ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        before = time.time_ns()
        for size in sizes:
            theirs.send(os.urandom(size))
        (batch,) = take(receiver, len(sizes))
        assert [len(each) for each in batch] == [min(size, 1501) for size in sizes]
        found = in_progress(reader)
        assert (found.kind, found.number, found.now, found.seq) == (DATAGRAMS, 2, 0.0, 0)
        assert (found.label, list(found.datagrams)) == ("Ost/ü".encode(), batch)
        assert found.stamps == tuple(map(receiver.stamp_ns, range(len(sizes))))
        assert before - 10_000_000 < found.stamps[0] <= found.stamps[-1] < time.time_ns()
        assert (found.name_size, found.names) == (name_size, pack_address(theirs.getsockname()) * len(sizes))
        one.set_time(12.5)
        assert layout.read_unfinished(reader) == found._replace(now=12.5)
        one.finish()
        assert layout.read_unfinished(reader) is None
        # Nothing of the last batch is left, and an empty receive is no input.
        theirs.send(b"alone")
        assert take(receiver, 1) == [[b"alone"]]
        found = in_progress(reader)
        assert (found.datagrams, len(found.names)) == ((b"alone",), name_size)
        serial = one.serial
        with pytest.raises(BlockingIOError):
            receiver.receive()
        assert layout.read_unfinished(reader) is None
        assert one.serial == serial + 1


def test_input_without_received_data_is_none() -> None:
    with opened() as (one, reader), udp() as (ours, theirs), pair() as (client, _):
        receiver = inflight.Receiver(one, 0, b"s", ours.fileno(), 1500, SOCKADDR_IN)
        inbox = inflight.PacketReceiver(one)
        theirs.send(b"before")
        take(receiver, 1)
        with pytest.raises(BlockingIOError):
            receiver.receive()
        assert inbox.receive(client.fileno(), 1) == -1
        for kind in (DATAGRAMS, PACKET):
            # As before the kernel has written a length.
            one.begin(kind, 0)
            assert layout.read_unfinished(reader) is None


# -- packets in


def test_packet_of_a_client_is_unfinished_until_finish() -> None:
    with opened() as (one, reader), pair() as (ours, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        one.assign(ours.fileno(), 9)
        one.set_next_seq(ours.fileno(), 1234)
        inbox = inflight.PacketReceiver(one)
        for serial, packet in enumerate([b"MSG a\0b", b"x" * 400_000, b"\0", b"y" * 409_600], 1):
            theirs.send(packet)
            assert inbox.receive(ours.fileno(), 42) == len(packet)
            assert inbox.packet(len(packet)) == packet
            assert layout.read_unfinished(reader) == layout.InflightInput(PACKET, 42, serial, 0.0, 1234, packet=packet)
            one.finish()
            assert layout.read_unfinished(reader) is None
        # A packet that is too large is one byte longer than the ceiling.
        for size in (409_601, 409_602, 420_000):
            theirs.send(b"z" * size)
            theirs.send(b"next")
            assert inbox.receive(ours.fileno(), 1) == layout.INBOX_SIZE == 409_601
            assert in_progress(reader).packet == b"z" * 409_601
            assert inbox.receive(ours.fileno(), 1) == 4


def test_empty_packet_is_an_input_and_an_error_is_none() -> None:
    with opened() as (one, reader), pair() as (ours, theirs):
        inbox = inflight.PacketReceiver(one)
        for serial, packet in ((1, b"something"), (2, b"")):
            theirs.send(packet)
            assert inbox.receive(ours.fileno(), 7) == len(packet)
            assert layout.read_unfinished(reader) == layout.InflightInput(PACKET, 7, serial, 0.0, 0, packet=packet)
        assert inbox.receive(ours.fileno(), 7) == -1
        assert layout.read_unfinished(reader) is None
        ours.send(b"unread")
        theirs.close()
        with pytest.raises(ConnectionResetError):
            inbox.receive(ours.fileno(), 7)
        assert layout.read_unfinished(reader) is None
        # At the end of a connection the size is 0 too.
        assert inbox.receive(ours.fileno(), 7) == 0
        with pytest.raises(OSError) as failed:
            inbox.receive(-1, 7)
        assert failed.value.errno == errno.EBADF
        assert layout.read_unfinished(reader) is None


# -- packets out


def test_single_packet_is_counted_with_its_weight_when_sent() -> None:
    with opened() as (one, reader), pair(TINY) as (ours, theirs):
        one.assign(ours.fileno(), 4)
        sender = inflight.Sender(one)
        one.begin(RETRY, 1)
        expected = 0
        for weight in (1, 1, 60, 3):
            assert sender.one(ours.fileno(), b"p%d" % weight, weight) == 0
            expected += weight
            assert layout.read_slot(reader, 4) == layout.ClientSlot(0, 1, expected, 0)
            assert layout.read_sending(reader) is None
        assert read(theirs) == [b"p1", b"p1", b"p60", b"p3"]
        assert sender.one(ours.fileno(), b"default") == 0
        expected += 1
        assert sender.one(ours.fileno(), b"x" * 100_000, 9) == errno.EMSGSIZE
        while (failed := sender.one(ours.fileno(), b"x" * 500, 2)) == 0:
            expected += 2
        assert failed == errno.EAGAIN
        assert sender.one(ours.fileno(), b"x" * 500, 7) == errno.EAGAIN
        assert one.counted(ours.fileno()) == received(reader, 4) == expected
        read(theirs)
        theirs.close()
        assert sender.one(ours.fileno(), b"x", 5) == errno.EPIPE
        assert received(reader, 4) == expected
        one.finish()
        one.begin(RETRY, 1)
        assert received(reader, 4) == one.counted(ours.fileno()) == 0
        assert sender.one(ours.fileno(), b"x", 5) == errno.EPIPE
        assert received(reader, 4) == 0


@pytest.mark.parametrize("count", [1, 2, 100, layout.MAX_PACKETS])
def test_sent_packets_of_a_batch_are_counted(count: int) -> None:
    packets = [b"%d" % number for number in range(count)]
    with opened() as (one, reader), pair() as (ours, theirs), pair(TINY) as (slow, behind):
        one.assign(ours.fileno(), 0)
        one.assign(slow.fileno(), 1)
        sender = inflight.Sender(one)
        one.begin(RETRY, 1)
        sender.load(packets)
        arrived: list[bytes] = []
        expected: list[list[bytes]] = [[], []]
        for _ in range(2):
            for slot, sock in enumerate((ours, slow)):
                sent = sender.send(sock.fileno())
                # The kernel queues no more packets for a socket, however small they are.
                assert sent == count or slot == 1 or count > 200
                expected[slot] += packets[:sent]
                assert received(reader, slot) == len(expected[slot])
                assert layout.read_sending(reader) is None
            arrived += read(theirs)
        assert [arrived, read(behind)] == expected


def test_batch_ends_at_an_unsendable_packet_and_too_many_are_refused() -> None:
    packets = [b"a", b"b", b"x" * 300_000, b"c"]
    with opened() as (one, reader), pair() as (ours, theirs):
        one.assign(ours.fileno(), 0)
        sender = inflight.Sender(one)
        one.begin(RETRY, 1)
        sender.load(packets)
        with pytest.raises(ValueError):
            sender.load([b"y"] * (layout.MAX_PACKETS + 1))
        assert sender.send(ours.fileno()) == received(reader, 0) == 2
        assert sender.one(ours.fileno(), packets[2]) == errno.EMSGSIZE
        assert sender.one(ours.fileno(), packets[3]) == 0
        assert received(reader, 0) == 3
        assert read(theirs) == [b"a", b"b", b"c"]


def test_client_without_a_slot_is_sent_to_unrecorded() -> None:
    with opened() as (one, reader), pair() as (ours, theirs), pair() as (other, behind):
        one.assign(other.fileno(), 0)
        sender = inflight.Sender(one)
        one.begin(RETRY, 1)
        sender.one(other.fileno(), b"x")
        before = reader[: layout.AT_SENDING], reader[layout.SLOTS : layout.PACKETS]
        assert sender.one(ours.fileno(), b"a", 5) == 0
        assert sender.waited(ours.fileno(), b"b", 5, 100) == 0
        sender.load([b"c", b"d"])
        assert sender.send(ours.fileno()) == 2
        assert sender.one(ours.fileno(), b"x" * 500_000) == errno.EMSGSIZE
        assert sender.waited(ours.fileno(), b"x" * 500_000, 1, 100) == errno.EMSGSIZE
        assert (reader[: layout.AT_SENDING], reader[layout.SLOTS : layout.PACKETS]) == before
        assert layout.read_sending(reader) is None
        assert read(theirs) == [b"a", b"b", b"c", b"d"]
        assert read(behind) == [b"x"]
        theirs.close()
        assert sender.one(ours.fileno(), b"a") == errno.EPIPE
        assert sender.send(ours.fileno()) == 0


def test_queued_packet_stays_recorded_until_the_next_send() -> None:
    with opened() as (one, reader), pair(TINY) as (ours, theirs), pair() as (other, _), pair() as (without, _):
        one.assign(ours.fileno(), 6)
        one.assign(other.fileno(), 7)
        sender = inflight.Sender(one)
        assert sender.waited(ours.fileno(), b"first", 1, 100) == 0
        assert layout.read_sending(reader) == layout.SendInProgress(6, 1, 1, 100)
        assert sender.waited(ours.fileno(), b"second", 12, 200) == 0
        assert layout.read_sending(reader) == layout.SendInProgress(6, 12, 12, 200)
        assert sender.waited(ours.fileno(), b"x" * 100_000, 12, 300) == errno.EMSGSIZE
        assert layout.read_sending(reader) == layout.SendInProgress(6, 0, 0, 300)
        while (failed := sender.waited(ours.fileno(), b"x" * 500, 1, 400)) == 0:
            assert layout.read_sending(reader) == layout.SendInProgress(6, 1, 1, 400)
        assert failed == errno.EAGAIN
        assert layout.read_sending(reader) == layout.SendInProgress(6, 0, 0, 400)
        read(theirs)
        assert sender.waited(ours.fileno(), b"third", 1, 500) == 0
        # An input and packets to a client without a slot do not replace this,
        one.begin(RETRY, 1)
        sender.load([b"x"])
        sender.send(without.fileno())
        sending = layout.read_sending(reader)
        assert sending is None or sending == layout.SendInProgress(6, 1, 1, 500)
        # packets to one with a slot do.
        assert sender.one(other.fileno(), b"x") == 0
        assert layout.read_sending(reader) is None
        assert layout.read_slot(reader, 6) == layout.ClientSlot(0, 0, 0, 0)


def test_new_sender_records_nothing_of_earlier_sends() -> None:
    with opened() as (one, reader), pair() as (ours, theirs):
        one.assign(ours.fileno(), 6)
        sender = inflight.Sender(one)
        sender.load([b"a", b"b"])
        sender.send(ours.fileno())
        sender.waited(ours.fileno(), b"c", 1, 100)
        sender = inflight.Sender(inflight.InflightState(one.memory))
        sending = layout.read_sending(reader)
        assert sending is None or not sending.taken
        assert read(theirs) == [b"a", b"b", b"c"]


def test_a_new_state_continues_in_the_same_memory() -> None:
    with opened() as (first, reader), pair() as (ours, theirs):
        first.assign(ours.fileno(), 11)
        first.begin(RETRY, 5)
        first.set_next_seq(ours.fileno(), 99)
        inflight.Sender(first).one(ours.fileno(), b"x", 6)
        first.finish()
        second = inflight.InflightState(first.memory)
        assert second.serial == 1
        second.assign(ours.fileno(), 11)
        assert second.counted(ours.fileno()) == 6
        second.begin(RETRY, 5, ours.fileno())
        assert layout.read_unfinished(reader) == layout.InflightInput(RETRY, 5, 2, 0.0, 99)
        assert second.counted(ours.fileno()) == 0
        assert read(theirs) == [b"x"]


# -- killed


Begin = Callable[[], object]


def kill_while(
    memory: mmap.mmap, work: Callable[[Begin], object], meanwhile: Callable[[], object], chance: random.Random
) -> None:
    """Run ``work`` in another process, which is killed within a millisecond after it has called its argument. Its own
    timer kills it, so that it is likely to be running then; ``meanwhile`` is called until it has ended."""
    # As if a daemon had continued after the last round.
    serial = layout.read_number(memory, layout.AT_SERIAL)
    for at, number in ((layout.AT_OPEN, 0), (layout.AT_SENDING, 0), (layout.AT_SERIAL, serial + 1)):
        layout.write_number(memory, at, number)
    seconds = 1e-6 + chance.random() * 0.001
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            work(partial(signal.setitimer, signal.ITIMER_REAL, seconds))
        os._exit(1)
    end = time.monotonic() + PATIENCE
    ended = status = 0
    while not ended and time.monotonic() < end:
        meanwhile()
        ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert ended, "it was not killed"
    assert os.WIFSIGNALED(status), "it has ended by itself"


def until_killed_often_enough(one_round: Callable[[], bool]) -> None:
    """Repeat a round until the writer was killed `HITS` times while an input was in progress."""
    hits = rounds = 0
    while hits < HITS:
        rounds += 1
        assert rounds <= ROUNDS, f"killed in time {hits} times of {rounds}"
        hits += one_round()


_MARK: Final = struct.Struct("=QI")


@pytest.mark.parametrize("filled", [False, True], ids=["room", "full"])
def test_killed_sender_has_sent_what_is_recorded(filled: bool) -> None:
    chance = random.Random(1)
    with new_memory() as (memory, reader), ExitStack() as open_:
        pairs = [open_.enter_context(pair(TINY if filled and number % 2 else 0)) for number in range(4)]
        arrived: list[list[tuple[int, int]]] = [[] for _ in pairs]

        def drain(most: int) -> None:
            for (_, theirs), found in zip(pairs, arrived, strict=True):
                for packet in read(theirs, most):
                    serial, index = _MARK.unpack_from(packet)
                    found += [(serial, index + message) for message in range(3 if len(packet) > 400 else 1)]

        def work(begin: Begin) -> None:
            one = inflight.InflightState(memory)
            sender = inflight.Sender(one)
            for number, (ours, _) in enumerate(pairs):
                one.assign(ours.fileno(), number)
            begin()
            while True:
                one.begin(RETRY, 1)
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

        def one_round() -> bool:
            kill_while(memory, work, lambda: drain(2 if filled else 1000), chance)
            drain(1_000_000)
            serial = layout.read_number(reader, layout.AT_SERIAL)
            found = layout.read_unfinished(reader)
            assert found is None or found.serial == serial
            parts = [[index for its, index in one if its == serial] for one in arrived]
            for number, part in enumerate(parts):
                assert part == list(range(len(part))), "out of order, or twice"
                assert received(reader, number) == len(part)
            for one in arrived:
                assert one == sorted(one)
                one.clear()
            return len(set(map(len, parts))) > 1

        until_killed_often_enough(one_round)


def test_killed_receiver_leaves_its_batch_recorded() -> None:
    chance = random.Random(2)
    numbers = count()
    with new_memory() as (memory, reader), udp() as (ours, theirs), pair() as (report, reports):
        report.setblocking(True)

        def work(begin: Begin) -> None:
            one = inflight.InflightState(memory)
            receiver = inflight.Receiver(one, 3, b"s", ours.fileno(), 1500, SOCKADDR_IN)
            begin()
            while True:
                with suppress(BlockingIOError):
                    batch = receiver.receive()
                    one.set_time(1.0)
                    sum(range(10_000))  # time to be killed in
                    report.send(b"%d %b" % (one.serial, b",".join(batch)))
                    one.finish()

        def one_round() -> bool:
            # The kernel queues as many in any case.
            sent = [b"%d" % number + b"." * (number % 7) for number in islice(numbers, 150)]
            for datagram in sent:
                theirs.send(datagram)
            kill_while(memory, work, lambda: None, chance)
            batches = {int(line.split()[0]): line.split()[1].split(b",") for line in read(reports)}
            found = layout.read_unfinished(reader)
            if found is not None:
                assert batches.setdefault(found.serial, list(found.datagrams)) == list(found.datagrams)
                assert len(found.names) == SOCKADDR_IN * len(found.datagrams)
            assert [one for serial in sorted(batches) for one in batches[serial]] + read(ours) == sent
            return found is not None

        until_killed_often_enough(one_round)


def test_killed_packet_receiver_leaves_its_packet_recorded() -> None:
    chance = random.Random(3)
    with new_memory() as (memory, reader), pair() as (ours, theirs), pair() as (report, reports):
        report.setblocking(True)
        numbers = count()
        sent: list[bytes] = []
        lines: list[bytes] = []

        def more() -> None:
            number = next(numbers)
            packet = b"%d" % number if number % 5 else b""
            with suppress(BlockingIOError):
                theirs.send(packet)
                sent.append(packet)
            lines.extend(read(reports))

        def work(begin: Begin) -> None:
            one = inflight.InflightState(memory)
            one.assign(ours.fileno(), 2)
            one.set_next_seq(ours.fileno(), 77)
            inbox = inflight.PacketReceiver(one)
            begin()
            while True:
                size = inbox.receive(ours.fileno(), 8)
                if size >= 0:
                    sum(range(10_000))  # time to be killed in
                    report.send(b"%d " % one.serial + inbox.packet(size))
                    one.finish()

        def one_round() -> bool:
            sent.clear()
            lines.clear()
            more()
            kill_while(memory, work, more, chance)
            packets = dict(line.split(b" ", 1) for line in (*lines, *read(reports)))
            found = layout.read_unfinished(reader)
            if found is not None:
                assert (found.number, found.seq) == (8, 77)
                assert packets.setdefault(b"%d" % found.serial, found.packet) == found.packet
            assert [*(packets[serial] for serial in sorted(packets, key=int)), *read(ours)] == sent
            return found is not None

        until_killed_often_enough(one_round)


# -- to a segment


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_broadcast_is_recorded_until_the_next_client_input(family: socket.AddressFamily) -> None:
    with opened() as (one, reader), udp(family) as (ours, theirs):
        address = pack_address(ours.getsockname())
        sender = inflight.BroadcastSender(one, 2, theirs.fileno(), address)
        failing = inflight.BroadcastSender(one, 3, theirs.fileno(), address[:4])

        def cast() -> list[int]:
            return [number for number in range(4) if layout.was_broadcast(reader, number)]

        for kind in (PACKET, RETRY):
            one.begin(kind, 7)
            assert cast() == []
            assert sender.cast(b"out") == 0
            assert failing.cast(b"nowhere") != 0
            assert cast() == [2]
            assert ours.recv(100) == b"out"
            one.finish()
        one.begin(DATAGRAMS, 1)
        assert cast() == [2]
        for number, name in ((layout.MAX_SEGMENTS, b""), (0, b"x" * (layout.NAME + 1))):
            with pytest.raises(IndexError):
                inflight.BroadcastSender(one, number, theirs.fileno(), name)


def test_killed_broadcaster_has_sent_what_is_recorded() -> None:
    chance = random.Random(4)
    with new_memory() as (memory, reader), udp() as (ours, theirs):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        address = pack_address(ours.getsockname())
        last = seen = overflown = 0

        def work(begin: Begin) -> None:
            one = inflight.InflightState(memory)
            senders = [inflight.BroadcastSender(one, number, theirs.fileno(), address) for number in range(2)]
            begin()
            while True:
                one.begin(PACKET if one.serial % 2 else RETRY, 1)
                for sender in senders:
                    sender.cast(b"%d" % one.serial)
                one.finish()
                one.begin(DATAGRAMS, 0)
                one.finish()

        def drain() -> None:
            nonlocal last, seen
            for datagram in read(ours):
                seen = seen + 1 if int(datagram) == last else 1
                last = int(datagram)

        def one_round() -> bool:
            nonlocal overflown
            kill_while(memory, work, drain, chance)
            drain()
            before, overflown = overflown, kernel_drops(ours)
            of_a_client = layout.read_number(reader, layout.AT_KIND) != DATAGRAMS
            # Where the kernel dropped some, what is missing may have been sent.
            if before != overflown or not layout.read_number(reader, layout.AT_OPEN) or not of_a_client:
                return False
            sent = seen if last == layout.read_number(reader, layout.AT_SERIAL) else 0
            assert [layout.was_broadcast(reader, number) for number in range(2)] == [sent > 0, sent > 1]
            return sent == 1

        until_killed_often_enough(one_round)
