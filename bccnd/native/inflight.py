"""What is being worked on, written down where it outlives us: `layout` says where what stands.

Law: what goes in and out is noted by the kernel together with its going, in memory of the ledger, so that whoever
reads it after us knows for each message whether it was sent; what we note ourselves is in an order in which it can be
read at any moment.
"""

from __future__ import annotations

import ctypes
import os
import socket
from mmap import mmap
from typing import Final

from bccnd.native import inflight_layout as layout
from bccnd.native import sockio
from bccnd.native.structs import CONTROL, Iovec, Mmsghdr, libc

_FLAGS: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
#: in words of eight bytes
_SERIAL, _OPEN, _KIND, _NUMBER, _SEQ, _ARMED, _WEIGHT, _BASE, _FIRST, _COUNT, _LENGTH = (
    at // 8
    for at in (
        *(layout.AT_SERIAL, layout.AT_OPEN, layout.AT_KIND, layout.AT_NUMBER, layout.AT_SEQ, layout.AT_ARMED),
        *(layout.AT_WEIGHT, layout.AT_BASE, layout.AT_FIRST, layout.AT_COUNT, layout.AT_LENGTH),
    )
)


class InflightState:
    """The numbers of a ledger: the input that is worked on, and what each client has got of it.

    Clients are spoken of by their descriptors, which have slots; one without a slot is not written down.
    """

    def __init__(self, memory: mmap) -> None:
        self.memory = memory
        self._words = memoryview(memory).cast("Q")
        self._halves = memoryview(memory).cast("I")
        self._now = memoryview(memory)[layout.AT_NOW : layout.AT_NOW + 8].cast("d")
        self._slots: dict[int, int] = {}
        #: segments that are sent to through `BroadcastSender`
        self._casts = 0

    @property
    def serial(self) -> int:
        """Of the input that is or was worked on."""
        return self._words[_SERIAL]

    def assign(self, fd: int, slot: int) -> None:
        """This client has that slot. Raises IndexError where there is no such slot."""
        if not 0 <= slot < layout.MAX_SLOTS or fd < 0:
            raise IndexError(slot)
        self._slots[fd] = slot

    def release(self, fd: int) -> None:
        self._slots.pop(fd, None)

    def _slot(self, fd: int) -> int:
        """The first word of a client's slot; 0 where it has none."""
        slot = self._slots.get(fd)
        return 0 if slot is None else (layout.SLOTS + layout.SLOT * slot) // 8

    def begin(self, kind: int, number: int, fd: int = -1) -> None:
        """An input is worked on from now on: of a kind, from the segment or client with that number; ``fd`` is the
        client's."""
        words, slot = self._words, self._slot(fd)
        words[_OPEN] = 0
        if kind != layout.DATAGRAMS:
            for segment in range(self._casts):
                self._halves[(layout.CASTS + layout.CAST * segment + layout.DONE) // 4] = layout.NOTHING
        words[_SERIAL] += 1
        words[_KIND], words[_NUMBER] = kind, number
        self._now[0] = 0.0
        words[_SEQ] = words[slot + 3] if slot else 0
        words[_OPEN] = 1

    def finish(self) -> None:
        """All that the input has brought is on its way."""
        self._words[_OPEN] = 0

    def say_when(self, now: float) -> None:
        """The time that the input is judged by."""
        self._now[0] = now

    def count(self, fd: int, messages: int) -> None:
        """A client has got messages of this input in another way than through `Sender`."""
        slot = self._slot(fd)
        if slot:
            self._give(slot, self.counted(fd) + messages)

    def counted(self, fd: int) -> int:
        """How many messages of this input a client has got."""
        slot, words = self._slot(fd), self._words
        return words[slot + 2] if slot and words[slot + 1] == words[_SERIAL] else 0

    def say_seq(self, fd: int, seq: int) -> None:
        """The seq that a client is to use next."""
        slot = self._slot(fd)
        if slot:
            self._words[slot + 3] = seq

    def _give(self, slot: int, got: int) -> None:
        words = self._words
        if words[slot + 1] != words[_SERIAL]:
            words[slot + 2] = 0
            words[slot + 1] = words[_SERIAL]
        words[slot + 2] = got

    def _arm(self, fd: int, weight: int, first: int, count: int, length: int) -> int:
        """This client is about to be sent to; its slot, 0 where it has none."""
        slot, words = self._slot(fd), self._words
        words[_ARMED] = 0
        if slot:
            start = (layout.header_at(first) + layout.DONE) // 4
            for number in range(count):
                self._halves[start + layout.HEADER // 4 * number] = layout.NOTHING
            words[_WEIGHT], words[_FIRST], words[_COUNT], words[_LENGTH] = weight, first, count, length
            words[_BASE] = self.counted(fd)
            words[_ARMED] = self._slots[fd] + 1
        return slot

    def _disarm(self, slot: int, got: int) -> None:
        """It has got so many messages."""
        self._give(slot, self._words[_BASE] + got)
        self._words[_ARMED] = 0


class Receiver(sockio.Receiver):
    """The batches of a segment, which is a ledger's segment of that ``number`` and is called ``label``."""

    def __init__(
        self, inflight: InflightState, number: int, label: bytes, fd: int, largest: int, name_size: int
    ) -> None:
        start = layout.SEGMENT + layout.SEGMENT_SIZE * number
        memory, size, batch = inflight.memory, largest + 1, sockio.BATCH
        layout.describe(memory, number, label, largest, name_size)
        self._inflight = inflight
        self._number = number
        self._headers = (Mmsghdr * batch).from_buffer(memory, start + layout.SEGMENT_HEADERS)
        self._lay_out(
            fd,
            size,
            name_size,
            self._headers,
            (Iovec * batch).from_buffer(memory, start + layout.SEGMENT_VECTORS),
            (ctypes.c_char * (batch * CONTROL)).from_buffer(memory, start + layout.SEGMENT_CONTROL),
            (ctypes.c_char * (batch * name_size)).from_buffer(memory, start + layout.SEGMENT_NAMES),
            (ctypes.c_char * (batch * size)).from_buffer(memory, start + layout.SEGMENT_DATA),
        )

    def receive(self) -> list[bytes]:
        """Begins an input, which its caller finishes when the batch is worked through."""
        for header in self._headers:
            header.msg_len = layout.NOTHING
        self._inflight.begin(layout.DATAGRAMS, self._number)
        try:
            return super().receive()
        except OSError:
            self._inflight.finish()
            raise


class Sender(sockio.Sender):
    """Packets to clients that have slots are noted as sent; at most `layout.MAX_PACKETS` at a time."""

    def __init__(self, inflight: InflightState) -> None:
        super().__init__()
        self._inflight = inflight
        memory, count = inflight.memory, layout.MAX_PACKETS
        #: the last of each is the one of a packet that is sent alone
        self._headers = [*(Mmsghdr * count).from_buffer(memory, layout.PACKETS)]
        self._headers.append(Mmsghdr.from_buffer(memory, layout.SINGLE_HEADER))
        self._vectors = [*(Iovec * count).from_buffer(memory, layout.VECTORS)]
        self._vectors.append(Iovec.from_buffer(memory, layout.SINGLE_VECTOR))
        for header, vector in zip(self._headers, self._vectors, strict=True):
            header.msg_hdr = type(header.msg_hdr)()
            header.msg_hdr.msg_iov = ctypes.addressof(vector)
            header.msg_hdr.msg_iovlen = 1
            header.msg_len = layout.NOTHING

    def load(self, packets: list[bytes]) -> None:
        if len(packets) > layout.MAX_PACKETS:
            raise ValueError("more packets than a ledger holds")
        for i, packet in enumerate(packets):
            self._put(i, packet)
        self._packets = packets

    def _put(self, number: int, packet: bytes) -> None:
        base = ctypes.cast(ctypes.c_char_p(packet), ctypes.c_void_p).value
        vector = self._vectors[number]
        vector.iov_base, vector.iov_len = base, len(packet)

    def _pass(self, fd: int, first: int, count: int) -> int:
        """Hand packets to the kernel: how many it took, or minus the errno of why it took none."""
        at = ctypes.addressof(self._headers[first])
        done: int = libc.sendmmsg(fd, ctypes.c_void_p(at), count, _FLAGS)
        return done if done > 0 else -ctypes.get_errno()

    def send(self, fd: int) -> int:
        count = len(self._packets)
        slot = self._inflight._arm(fd, 1, 0, count, 0)
        sent = 0
        while sent < count:
            now = self._pass(fd, sent, count - sent)
            if now <= 0:
                break
            sent += now
        if slot:
            self._inflight._disarm(slot, sent)
        return sent

    def one(self, fd: int, packet: bytes, weight: int = 1) -> int:
        slot = self._inflight._arm(fd, weight, layout.SINGLE, 1, 0)
        failed = self._single(fd, packet)
        if slot:
            self._inflight._disarm(slot, 0 if failed else weight)
        return failed

    def waited(self, fd: int, packet: bytes, weight: int, length: int) -> int:
        # It stays armed: until the next packet, what is known of the client need not say yet that it got this one.
        self._inflight._arm(fd, weight, layout.SINGLE, 1, length)
        return self._single(fd, packet)

    def _single(self, fd: int, packet: bytes) -> int:
        self._put(layout.SINGLE, packet)
        done = self._pass(fd, layout.SINGLE, 1)
        return 0 if done > 0 else -done


class BroadcastSender:
    """Broadcasts to the segment of that ``number`` at an ``address`` (sockaddr): noted as sent, until the next input of
    a client begins."""

    def __init__(self, inflight: InflightState, number: int, fd: int, address: bytes) -> None:
        """Raises IndexError where there is no room for such a segment."""
        if not 0 <= number < layout.MAX_SEGMENTS or len(address) > layout.NAME:
            raise IndexError(number)
        start, memory = layout.CASTS + layout.CAST * number, inflight.memory
        inflight._casts = max(inflight._casts, number + 1)
        self._fd = fd
        self._header = Mmsghdr.from_buffer(memory, start)
        self._vector = Iovec.from_buffer(memory, start + layout.CAST_VECTOR)
        name = (ctypes.c_char * len(address)).from_buffer(memory, start + layout.CAST_NAME)
        name.raw = address
        self._header.msg_hdr = type(self._header.msg_hdr)()
        head = self._header.msg_hdr
        head.msg_name, head.msg_namelen = ctypes.addressof(name), len(address)
        head.msg_iov, head.msg_iovlen = ctypes.addressof(self._vector), 1

    def cast(self, datagram: bytes) -> int:
        """Send a datagram: 0, or the errno of why not."""
        self._vector.iov_base = ctypes.cast(ctypes.c_char_p(datagram), ctypes.c_void_p).value
        self._vector.iov_len = len(datagram)
        at = ctypes.c_void_p(ctypes.addressof(self._header))
        return 0 if libc.sendmmsg(self._fd, at, 1, _FLAGS) == 1 else ctypes.get_errno()


class PacketReceiver(sockio.PacketReceiver):
    """Packets from clients, each of which begins an input, which the caller finishes when it is worked through."""

    def __init__(self, inflight: InflightState) -> None:
        memory = inflight.memory
        self._inflight = inflight
        self.view = memoryview(memory)[layout.INBOX_DATA : layout.INBOX_DATA + layout.INBOX_SIZE]
        self._vector = Iovec.from_buffer(memory, layout.INBOX + layout.HEADER)
        self._header = Mmsghdr.from_buffer(memory, layout.INBOX)
        room = (ctypes.c_char * layout.INBOX_SIZE).from_buffer(memory, layout.INBOX_DATA)
        self._vector.iov_base, self._vector.iov_len = ctypes.addressof(room), layout.INBOX_SIZE
        self._header.msg_hdr = type(self._header.msg_hdr)()
        self._header.msg_hdr.msg_iov, self._header.msg_hdr.msg_iovlen = ctypes.addressof(self._vector), 1

    def receive(self, fd: int, number: int) -> int:
        self._header.msg_len = layout.NOTHING
        self._inflight.begin(layout.PACKET, number, fd)
        at = ctypes.c_void_p(ctypes.addressof(self._header))
        if libc.recvmmsg(fd, at, 1, socket.MSG_DONTWAIT, None) < 0:
            self._inflight.finish()
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed))
        return int(self._header.msg_len)
