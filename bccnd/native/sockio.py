"""Packets in and out of the kernel: many datagrams with one call, and one packet to a client.

Law: no call blocks. Buffers are made once; what is handed out is a copy of just the bytes that came.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from typing import Any, Final

from bccnd.native.structs import CONTROL, Iovec, Mmsghdr, Msghdr, libc

#: datagrams per system call: at 64 the call's own cost has vanished behind the datagrams'
BATCH: Final = 64

_WORDS: Final = ctypes.sizeof(Mmsghdr) // 4
_LEN_WORD: Final = Mmsghdr.msg_len.offset // 4
_CMSG_HEADER: Final = ctypes.sizeof(ctypes.c_size_t) + 8


class Receiver:
    """recvmmsg(2) on one non-blocking socket.

    ``names`` holds the senders of the last batch, ``name_size`` bytes of sockaddr each. The kernel's stamp
    (SO_TIMESTAMPNS) is asked for with the first datagram of a batch only, which is the one that has waited longest,
    unless `stamp_all` says otherwise.
    """

    def __init__(self, fd: int, largest: int, name_size: int) -> None:
        # One byte more than is accepted, so that what is too long shows as too long and not as cut.
        size = largest + 1
        self._lay_out(
            fd,
            size,
            name_size,
            (Mmsghdr * BATCH)(),
            (Iovec * BATCH)(),
            (ctypes.c_char * (BATCH * CONTROL))(),
            (ctypes.c_char * (BATCH * name_size))(),
            (ctypes.c_char * (BATCH * size))(),
        )

    def _lay_out(
        self, fd: int, size: int, name_size: int, headers: Any, iovecs: Any, control: Any, names: Any, data: Any
    ) -> None:
        """Tell the kernel, in headers that may have been used before, where everything is to go."""
        self._rooms = (headers, iovecs, control, names, data)
        for i in range(BATCH):
            iovecs[i] = Iovec(ctypes.addressof(data) + i * size, size)
            headers[i].msg_hdr = Msghdr()
            header = headers[i].msg_hdr
            header.msg_name, header.msg_namelen = ctypes.addressof(names) + i * name_size, name_size
            header.msg_iov, header.msg_iovlen = ctypes.addressof(iovecs[i]), 1
        self._heads = [headers[i].msg_hdr for i in range(BATCH)]
        self._control = ctypes.addressof(control)
        self.stamp_all(False)
        view = memoryview(data).cast("B")
        self._views = [view[i * size : (i + 1) * size] for i in range(BATCH)]
        # Laid out side by side, so that the lengths of a batch are read with one slice.
        self._lengths = memoryview(headers).cast("B").cast("I")[_LEN_WORD::_WORDS]
        self._stamps = memoryview(control).cast("B").cast("q")
        self._recvmmsg = libc.recvmmsg
        self._recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
        self._arguments = (fd, ctypes.addressof(headers), BATCH, socket.MSG_DONTWAIT, None)
        self.names = memoryview(names).cast("B")

    def stamp_all(self, wanted: bool) -> None:
        """Whether the kernel is asked for the stamps of all datagrams; if not, for that of the first of each batch."""
        self._stamped = self._heads if wanted else self._heads[:1]
        for i, head in enumerate(self._heads):
            head.msg_control = self._control + i * CONTROL if i < len(self._stamped) else None
            head.msg_controllen = 0

    def receive(self) -> list[bytes]:
        """The datagrams that are there, at most BATCH. ``names`` and `stamp_ns` speak of this batch until the next
        call. Raises OSError, BlockingIOError among them."""
        for head in self._stamped:
            head.msg_controllen = CONTROL
        count = self._recvmmsg(*self._arguments)
        if count < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if count == 1:
            return [self._views[0][: self._lengths[0]].tobytes()]
        lengths = self._lengths[:count].tolist()
        return [view[:length].tobytes() for view, length in zip(self._views, lengths, strict=False)]

    def stamp_ns(self, number: int = 0) -> int:
        """When the kernel received a datagram of the batch, by the wall clock; 0 if it did not say."""
        if not 0 <= number < BATCH:
            raise IndexError(number)
        if not self._heads[number].msg_controllen:
            return 0
        at = (number * CONTROL + _CMSG_HEADER) // 8
        return self._stamps[at] * 1_000_000_000 + self._stamps[at + 1]


class Sender:
    """Packets to clients: one, or many to each of many sockets, for which what the kernel is to be told of them is
    written down once. Sockets are connected and do not block."""

    def __init__(self) -> None:
        self._packets: list[bytes] = []

    def load(self, packets: list[bytes]) -> None:
        """What `send` is to send."""
        self._packets = packets

    def send(self, fd: int) -> int:
        """Send what was loaded; how many of the packets went out before there was one that did not."""
        for count, packet in enumerate(self._packets):
            if self.one(fd, packet):
                return count
        return len(self._packets)

    def one(self, fd: int, packet: bytes, weight: int = 1) -> int:  # noqa: ARG002
        """Send a packet, which holds ``weight`` messages: 0, or the errno of why not."""
        try:
            # The cheapest way into the kernel that Python has; a SEQPACKET socket takes it for send(2).
            os.write(fd, packet)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def waited(self, fd: int, packet: bytes, weight: int, length: int) -> int:  # noqa: ARG002
        """The same for one that has waited in a queue; what is known of the client was ``length`` bytes long before."""
        return self.one(fd, packet, weight)


class PacketReceiver:
    """Packets from clients, one at a time. ``view`` is where they come."""

    def __init__(self, largest: int) -> None:
        # One byte more than is accepted, so that what is too long shows as too long and not as cut.
        self.view = memoryview(bytearray(largest + 1))

    def receive(self, fd: int, number: int) -> int:  # noqa: ARG002
        """The size of the next packet of a client, which has a ``number``; 0 for an empty one and at the end. Raises
        OSError, BlockingIOError among them."""
        return os.readv(fd, [self.view])
