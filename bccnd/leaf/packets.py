"""Packets in and out of the kernel: many datagrams with one call, and one packet to a client.

Law: no call blocks. Buffers are made once; what is handed out is a copy of just the bytes that came.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from typing import Final

#: datagrams per system call: at 64 the call's own cost has vanished behind the datagrams'
BATCH: Final = 64
#: header (16 bytes on 64 bit) and struct timespec
_CONTROL: Final = 64


class _Iovec(ctypes.Structure):
    _fields_ = (("iov_base", ctypes.c_void_p), ("iov_len", ctypes.c_size_t))


class _Msghdr(ctypes.Structure):
    _fields_ = (
        ("msg_name", ctypes.c_void_p),
        ("msg_namelen", ctypes.c_uint32),
        ("msg_iov", ctypes.c_void_p),
        ("msg_iovlen", ctypes.c_size_t),
        ("msg_control", ctypes.c_void_p),
        ("msg_controllen", ctypes.c_size_t),
        ("msg_flags", ctypes.c_int),
    )


class _Mmsghdr(ctypes.Structure):
    _fields_ = (("msg_hdr", _Msghdr), ("msg_len", ctypes.c_uint32))


_libc = ctypes.CDLL(None, use_errno=True)
_WORDS: Final = ctypes.sizeof(_Mmsghdr) // 4
_LEN_WORD: Final = _Mmsghdr.msg_len.offset // 4
_CMSG_HEADER: Final = ctypes.sizeof(ctypes.c_size_t) + 8


class Receiver:
    """recvmmsg(2) on one non-blocking socket.

    ``names`` holds the senders of the last batch, ``name_size`` bytes of sockaddr each. The kernel's stamp
    (SO_TIMESTAMPNS) is asked for with the first datagram of a batch only, which is the one that has waited longest.
    """

    def __init__(self, fd: int, largest: int, name_size: int) -> None:
        # One byte more than is accepted, so that what is too long shows as too long and not as cut.
        size = largest + 1
        self._data = ctypes.create_string_buffer(BATCH * size)
        self._names = ctypes.create_string_buffer(BATCH * name_size)
        self._control = ctypes.create_string_buffer(_CONTROL)
        self._iovecs = (_Iovec * BATCH)()
        self._headers = (_Mmsghdr * BATCH)()
        data, names = ctypes.addressof(self._data), ctypes.addressof(self._names)
        for i in range(BATCH):
            self._iovecs[i] = _Iovec(data + i * size, size)
            header = self._headers[i].msg_hdr
            header.msg_name, header.msg_namelen = names + i * name_size, name_size
            header.msg_iov, header.msg_iovlen = ctypes.addressof(self._iovecs[i]), 1
        self._first = self._headers[0].msg_hdr
        self._first.msg_control = ctypes.addressof(self._control)
        view = memoryview(self._data).cast("B")
        self._views = [view[i * size : (i + 1) * size] for i in range(BATCH)]
        # Laid out side by side, so that the lengths of a batch are read with one slice.
        self._lengths = memoryview(self._headers).cast("B").cast("I")[_LEN_WORD::_WORDS]
        self._stamp = memoryview(self._control).cast("B")[_CMSG_HEADER : _CMSG_HEADER + 16].cast("q")
        self._recvmmsg = _libc.recvmmsg
        self._recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
        self._arguments = (fd, ctypes.addressof(self._headers), BATCH, socket.MSG_DONTWAIT, None)
        self.names = memoryview(self._names).cast("B")

    def receive(self) -> list[bytes]:
        """The datagrams that are there, at most BATCH. ``names`` and `stamp_ns` speak of this batch until the next
        call. Raises OSError, BlockingIOError among them."""
        self._first.msg_controllen = _CONTROL
        count = self._recvmmsg(*self._arguments)
        if count < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if count == 1:
            return [self._views[0][: self._lengths[0]].tobytes()]
        lengths = self._lengths[:count].tolist()
        return [view[:length].tobytes() for view, length in zip(self._views, lengths, strict=False)]

    def stamp_ns(self) -> int:
        """When the kernel received the first datagram of the batch, by the wall clock; 0 if it did not say."""
        if not self._first.msg_controllen:
            return 0
        return self._stamp[0] * 1_000_000_000 + self._stamp[1]


def send(fd: int, packet: bytes) -> int:
    """Send a packet on a connected, non-blocking socket: 0, or the errno of why not."""
    try:
        # The cheapest way into the kernel that Python has; a SEQPACKET socket takes it for send(2).
        os.write(fd, packet)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


class Sender:
    """Many packets to each of many sockets: what the kernel is to be told of them is written down once."""

    def __init__(self) -> None:
        self._packets: list[bytes] = []

    def load(self, packets: list[bytes]) -> None:
        """What `send` is to send."""
        self._packets = packets

    def send(self, fd: int) -> int:
        """Send what was loaded on a connected, non-blocking socket; how many of the packets went out before there was
        one that did not."""
        for count, packet in enumerate(self._packets):
            if send(fd, packet):
                return count
        return len(self._packets)
