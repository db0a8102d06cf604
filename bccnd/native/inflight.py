"""Records the input in progress in shared memory, for the successor of a killed daemon; see inflight_layout.py.

Invariant: the memory can be read at any moment. The kernel itself writes there what it received and sent, so that the
successor can tell for each message whether it was sent.
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
    """The input in progress, and how many of its messages each client got.

    Clients are named by descriptors, to which slots are assigned; a client without a slot is not recorded.
    """

    def __init__(self, memory: mmap) -> None:
        self.memory = memory
        self._words = memoryview(memory).cast("Q")
        self._halves = memoryview(memory).cast("I")
        self._now = memoryview(memory)[layout.AT_NOW : layout.AT_NOW + 8].cast("d")
        self._slots: dict[int, int] = {}
        #: number of segments with a `BroadcastSender`
        self._casts = 0

    @property
    def serial(self) -> int:
        """Number of the current or last input."""
        return self._words[_SERIAL]

    def assign(self, fd: int, slot: int) -> None:
        """Assign a slot to a client. Raises IndexError for an invalid slot."""
        if not 0 <= slot < layout.MAX_SLOTS or fd < 0:
            raise IndexError(slot)
        self._slots[fd] = slot

    def release(self, fd: int) -> None:
        self._slots.pop(fd, None)

    def _slot(self, fd: int) -> int:
        """Return the first word of a client's slot, or 0."""
        slot = self._slots.get(fd)
        return 0 if slot is None else (layout.SLOTS + layout.SLOT * slot) // 8

    def begin(self, kind: int, number: int, fd: int = -1) -> None:
        """Begin an input of a kind from the segment or client with a number; ``fd`` is the client's."""
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
        """Mark the input as completely processed."""
        self._words[_OPEN] = 0

    def say_when(self, now: float) -> None:
        """Record the time by which the input is judged."""
        self._now[0] = now

    def count(self, fd: int, messages: int) -> None:
        """Count messages of this input that a client got other than through `Sender`."""
        slot = self._slot(fd)
        if slot:
            self._give(slot, self.counted(fd) + messages)

    def counted(self, fd: int) -> int:
        """Return how many messages of this input a client got."""
        slot, words = self._slot(fd), self._words
        return words[slot + 2] if slot and words[slot + 1] == words[_SERIAL] else 0

    def say_seq(self, fd: int, seq: int) -> None:
        """Record the next seq of a client."""
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
        """Record that a client is about to be sent to; return its slot, or 0."""
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
        """Record that the client got ``got`` messages."""
        self._give(slot, self._words[_BASE] + got)
        self._words[_ARMED] = 0


class Receiver(sockio.Receiver):
    """Receives batches of the segment ``number``, named ``label``, into the shared memory."""

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
        """Begin an input with a batch; the caller finishes it."""
        for header in self._headers:
            header.msg_len = layout.NOTHING
        self._inflight.begin(layout.DATAGRAMS, self._number)
        try:
            return super().receive()
        except OSError:
            self._inflight.finish()
            raise


class Sender(sockio.Sender):
    """Sends packets to clients, recording those sent; at most `layout.MAX_PACKETS` at a time."""

    def __init__(self, inflight: InflightState) -> None:
        super().__init__()
        self._inflight = inflight
        memory, count = inflight.memory, layout.MAX_PACKETS
        #: the last of each is for single packets
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
            raise ValueError("more packets than the shared memory holds")
        for i, packet in enumerate(packets):
            self._put(i, packet)
        self._packets = packets

    def _put(self, number: int, packet: bytes) -> None:
        base = ctypes.cast(ctypes.c_char_p(packet), ctypes.c_void_p).value
        vector = self._vectors[number]
        vector.iov_base, vector.iov_len = base, len(packet)

    def _send_packets(self, fd: int, first: int, count: int) -> int:
        """Send packets; return how many were sent, or minus the errno."""
        at = ctypes.addressof(self._headers[first])
        done: int = libc.sendmmsg(fd, ctypes.c_void_p(at), count, _FLAGS)
        return done if done > 0 else -ctypes.get_errno()

    def send(self, fd: int) -> int:
        count = len(self._packets)
        slot = self._inflight._arm(fd, 1, 0, count, 0)
        sent = 0
        while sent < count:
            now = self._send_packets(fd, sent, count - sent)
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
        # Stays armed until the next packet: the client's log may not have this one as sent yet.
        self._inflight._arm(fd, weight, layout.SINGLE, 1, length)
        return self._single(fd, packet)

    def _single(self, fd: int, packet: bytes) -> int:
        self._put(layout.SINGLE, packet)
        done = self._send_packets(fd, layout.SINGLE, 1)
        return 0 if done > 0 else -done


class BroadcastSender:
    """Broadcasts to segment ``number`` at ``address`` (sockaddr), recording what was sent until the next input from a
    client."""

    def __init__(self, inflight: InflightState, number: int, fd: int, address: bytes) -> None:
        """Raises IndexError for an invalid number or address."""
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
        """Send a datagram; return 0 or the errno."""
        self._vector.iov_base = ctypes.cast(ctypes.c_char_p(datagram), ctypes.c_void_p).value
        self._vector.iov_len = len(datagram)
        at = ctypes.c_void_p(ctypes.addressof(self._header))
        return 0 if libc.sendmmsg(self._fd, at, 1, _FLAGS) == 1 else ctypes.get_errno()


class PacketReceiver(sockio.PacketReceiver):
    """Receives packets from clients; each begins an input, which the caller finishes."""

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
