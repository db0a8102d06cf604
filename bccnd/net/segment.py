"""A segment: the socket that sends to it and receives from it, in batches.

Law: what goes wrong after the socket was opened is counted and leaves it open; what the kernel dropped is asked of
the kernel. Source: BCCN, DELIVERY.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, overload

from bccnd.core.bccn1 import MAX_RECEIVE
from bccnd.core.counters import SegmentCounters
from bccnd.net.udp import UdpOptions, destination, grow_receive_buffer, open_udp, peer_name

#: datagrams per system call: at 64 the call's own cost has vanished behind the datagrams'
BATCH: Final = 64
#: bytes that may wait to be sent: some thousand datagrams that clients publish at once
SEND_BUFFER: Final = 4 << 20
#: from <asm-generic/socket.h>; the socket module does not name them
_SO_SNDBUFFORCE: Final = 32
_SO_TIMESTAMPNS: Final = 35
_SO_MEMINFO: Final = 55
_MEMINFO_DROPS: Final = 8
_MEMINFO_SIZE: Final = 36
_SOCKADDR_IN: Final = 16
_SOCKADDR_IN6: Final = 28
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


class Peers(Sequence[str]):
    """The senders of a batch, as `peer_name` writes them; text is made only for those that are asked for."""

    def __init__(self, names: memoryview, family: socket.AddressFamily) -> None:
        self._names = names
        self._size, self._name = (_SOCKADDR_IN, _name4) if family == socket.AF_INET else (_SOCKADDR_IN6, _name6)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        try:
            return self._name(self._names, index * self._size)
        except struct.error:  # beyond the last one: a sequence says so in its own way
            raise IndexError(index) from None

    def __len__(self) -> int:
        return len(self._names) // self._size


def _name4(names: memoryview, start: int) -> str:
    port, address = struct.unpack_from("!2xH4s", names, start)
    return f"{socket.inet_ntoa(address)}:{port}"


def _name6(names: memoryview, start: int) -> str:
    port, address = struct.unpack_from("!2xH4x16s", names, start)
    (scope,) = struct.unpack_from("=I", names, start + 24)
    return peer_name((socket.inet_ntop(socket.AF_INET6, address), port, 0, scope))


class Receiver:
    """recvmmsg(2) on one socket. The buffers are made once and laid out side by side, so that a batch is read with
    one call and its lengths with one slice; the kernel's stamp is asked for with the first datagram only, which is
    the one that has waited longest."""

    def __init__(self, fd: int, largest: int, family: socket.AddressFamily = socket.AF_INET) -> None:
        # One byte more than is accepted, so that what is too long shows as too long and not as cut.
        size = largest + 1
        self._fd = fd
        self._data = ctypes.create_string_buffer(BATCH * size)
        name_size = _SOCKADDR_IN if family == socket.AF_INET else _SOCKADDR_IN6
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
        self._lengths = memoryview(self._headers).cast("B").cast("I")[_LEN_WORD::_WORDS]
        self._stamp = memoryview(self._control).cast("B")[_CMSG_HEADER : _CMSG_HEADER + 16].cast("q")
        self._recvmmsg = _libc.recvmmsg
        self._recvmmsg.argtypes = (
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_void_p,
        )
        self._arguments = (fd, ctypes.addressof(self._headers), BATCH, socket.MSG_DONTWAIT, None)
        self.peers = Peers(memoryview(self._names).cast("B"), family)

    def receive(self) -> list[bytes]:
        """The datagrams that are there, at most BATCH. `peers` speaks of this batch until the next call.

        Raises OSError, BlockingIOError among them.
        """
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


@dataclass(frozen=True)
class SegmentOptions(UdpOptions):
    """How to reach a segment, and what the kernel keeps for us meanwhile; both sizes in bytes."""

    _: KW_ONLY
    receive_buffer: int = 16 << 20
    largest: int = MAX_RECEIVE


class Segment:
    """One socket on a segment, open and checked."""

    def __init__(self, options: SegmentOptions) -> None:
        """Raises StartError with a remedy when this segment cannot be served from here."""
        self.options = options
        self.counters = SegmentCounters(options.name)
        self.warnings: list[str] = []
        self.sock = open_udp(options)
        self._to = destination(options)
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        granted = grow_receive_buffer(self.sock, options.receive_buffer)
        if granted < options.receive_buffer:
            self.warnings.append(
                f"segment {options.name}: the kernel grants a receive buffer of {granted} bytes, "
                f"{options.receive_buffer} were asked for; a burst may be lost. "
                f"Remedy: sysctl -w net.core.rmem_max={options.receive_buffer}"
            )
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        with contextlib.suppress(PermissionError):
            self.sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER)
        self.receiver = Receiver(self.sock.fileno(), options.largest, options.family)
        self._sendto = self.sock.sendto

    def fileno(self) -> int:
        return self.sock.fileno()

    def broadcast(self, datagram: bytes) -> str | None:
        """Send a datagram to everyone on the segment, at once or not at all.

        Returns None, or the errno's name if the kernel refused; both are counted.
        """
        try:
            self._sendto(datagram, self._to)
        except OSError as failed:
            name = errno.errorcode.get(failed.errno or 0, "UNKNOWN")
            self.counters.send_failed(name)
            return name
        self.counters.sent += 1
        return None

    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped for want of room in this socket's buffer, since it was opened."""
        info = self.sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO_SIZE)
        drops: int = struct.unpack_from("=I", info, _MEMINFO_DROPS * 4)[0]
        return drops

    def close(self) -> None:
        self.sock.close()
