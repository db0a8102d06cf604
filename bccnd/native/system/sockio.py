"""Receives and sends packets, many with one system call (recvmmsg, sendmmsg).

No call blocks. Buffers are allocated once; received datagrams are copies.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from typing import Any, Final

from bccnd.native.system.socket_structs import CONTROL, Iovec, Mmsghdr, Msghdr, libc

#: datagrams per system call: with 64 the cost of the call is negligible
BATCH: Final = 64

_WORDS: Final = ctypes.sizeof(Mmsghdr) // 4
_LEN_WORD: Final = Mmsghdr.msg_len.offset // 4
_CMSG_HEADER: Final = ctypes.sizeof(ctypes.c_size_t) + 8


class Receiver:
    """recvmmsg(2) on one non-blocking socket.

    ``names`` holds the senders of the last batch, ``name_size`` bytes of sockaddr each. Each datagram gets the kernel's
    timestamp, if the socket has SO_TIMESTAMPNS.
    """

    def __init__(self, fd: int, largest: int, name_size: int) -> None:
        # one byte more than the ceiling, to detect longer ones
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
        """Set up the headers, which may have been used before."""
        self._buffers = (headers, iovecs, control, names, data)
        for i in range(BATCH):
            iovecs[i] = Iovec(ctypes.addressof(data) + i * size, size)
            headers[i].msg_hdr = Msghdr()
            header = headers[i].msg_hdr
            header.msg_name, header.msg_namelen = ctypes.addressof(names) + i * name_size, name_size
            header.msg_iov, header.msg_iovlen = ctypes.addressof(iovecs[i]), 1
        self._heads = [headers[i].msg_hdr for i in range(BATCH)]
        self._control = ctypes.addressof(control)
        for i, head in enumerate(self._heads):
            head.msg_control, head.msg_controllen = self._control + i * CONTROL, 0
        #: headers that the last batch has used
        self._used = BATCH
        view = memoryview(data).cast("B")
        self._views = [view[i * size : (i + 1) * size] for i in range(BATCH)]
        # lengths of a batch as one slice
        self._lengths = memoryview(headers).cast("B").cast("I")[_LEN_WORD::_WORDS]
        self._stamps = memoryview(control).cast("B").cast("q")
        self._recvmmsg = libc.recvmmsg
        self._recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
        self._arguments = (fd, ctypes.addressof(headers), BATCH, socket.MSG_DONTWAIT, None)
        self.names = memoryview(names).cast("B")

    def receive(self) -> list[bytes]:
        """Return the available datagrams, at most BATCH; ``names`` and `stamp_ns` then refer to this batch. Raises
        OSError, or BlockingIOError if there are none."""
        # The kernel has changed those of the last batch.
        for head in self._heads[: self._used]:
            head.msg_controllen = CONTROL
        count = self._recvmmsg(*self._arguments)
        if count < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._used = count
        if count == 1:
            return [self._views[0][: self._lengths[0]].tobytes()]
        lengths = self._lengths[:count].tolist()
        return [view[:length].tobytes() for view, length in zip(self._views, lengths, strict=False)]

    def stamp_ns(self, number: int = 0) -> int:
        """Return the kernel's timestamp of a datagram of the batch (wall clock), or 0."""
        if not 0 <= number < self._used:
            raise IndexError(number)
        if not self._heads[number].msg_controllen:
            return 0
        at = (number * CONTROL + _CMSG_HEADER) // 8
        return self._stamps[at] * 1_000_000_000 + self._stamps[at + 1]


class Sender:
    """Sends packets to connected, non-blocking sockets: one, or a list that is prepared once for many sockets."""

    def __init__(self) -> None:
        self._packets: list[bytes] = []

    def load(self, packets: list[bytes]) -> None:
        """Set the packets for `send`."""
        self._packets = packets

    def send(self, fd: int) -> int:
        """Send the loaded packets; return how many were sent before the first failure."""
        for count, packet in enumerate(self._packets):
            if self.send_one(fd, packet):
                return count
        return len(self._packets)

    def send_one(self, fd: int, packet: bytes) -> int:
        """Send a packet; return 0 or the errno."""
        try:
            # cheaper than socket.send
            os.write(fd, packet)
        except OSError as error:
            return error.errno or errno.EIO
        return 0


class BroadcastSender:
    """Sends datagrams to one address: ``to`` as Python's sockets take it, ``packed`` as the kernel does (sockaddr)."""

    def __init__(self, sock: socket.socket, to: tuple[Any, ...], packed: bytes) -> None:  # noqa: ARG002
        self._sock = sock
        self._to = to

    def broadcast(self, datagram: bytes) -> int:
        """Send a datagram; return 0 or the errno."""
        try:
            self._sock.sendto(datagram, self._to)
        except OSError as error:
            return error.errno or errno.EIO
        return 0


class PacketReceiver:
    """Receives packets from clients, one at a time."""

    def __init__(self, largest: int) -> None:
        # one byte more than the ceiling, to detect longer ones
        self._view = memoryview(bytearray(largest + 1))

    def receive(self, fd: int) -> int:
        """Receive the next packet of a client and return its size: 0 for an empty one and at the end, -1 if
        there is none. Raises OSError."""
        try:
            return os.readv(fd, [self._view])
        except BlockingIOError:
            return -1

    def packet(self, size: int) -> bytes:
        """Return the first ``size`` bytes of the last packet."""
        return bytes(self._view[:size])
