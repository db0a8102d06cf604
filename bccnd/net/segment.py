"""A segment: the socket that broadcasts to it and receives from it, in batches.

Law: a segment is opened only if it can do its work (its address is a broadcast address and its socket can
receive one), and what goes wrong later is counted and leaves the socket open. Source: BCCN, DELIVERY.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, overload

from bccnd.core.counters import SegmentCounters
from bccnd.errors import StartError

#: datagrams per system call: at 64 the call's own cost has vanished behind the datagrams'
BATCH: Final = 64
#: bytes that may wait to be sent: some thousand datagrams that clients publish at once
SEND_BUFFER: Final = 4 << 20
#: from <asm-generic/socket.h>; the socket module does not name them
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33
_SO_TIMESTAMPNS: Final = 35
_SO_MEMINFO: Final = 55
_MEMINFO_DROPS: Final = 8
_MEMINFO_SIZE: Final = 36
_SOCKADDR_IN: Final = 16
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
    """The senders of a batch as ``address:port``; text is made only for those that are asked for."""

    def __init__(self, names: memoryview) -> None:
        self._names = names

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        port, address = struct.unpack_from("!2xH4s", self._names, index * _SOCKADDR_IN)
        return f"{socket.inet_ntoa(address)}:{port}"

    def __len__(self) -> int:
        return len(self._names) // _SOCKADDR_IN


class Receiver:
    """recvmmsg(2) on one socket. The buffers are made once and laid out side by side, so that a batch is read with
    one call and its lengths with one slice; the kernel's stamp is asked for with the first datagram only, which is
    the one that has waited longest."""

    def __init__(self, fd: int, largest: int) -> None:
        # One byte more than is accepted, so that what is too long shows as too long and not as cut.
        size = largest + 1
        self._fd = fd
        self._data = ctypes.create_string_buffer(BATCH * size)
        self._names = ctypes.create_string_buffer(BATCH * _SOCKADDR_IN)
        self._control = ctypes.create_string_buffer(_CONTROL)
        self._iovecs = (_Iovec * BATCH)()
        self._headers = (_Mmsghdr * BATCH)()
        data, names = ctypes.addressof(self._data), ctypes.addressof(self._names)
        for i in range(BATCH):
            self._iovecs[i] = _Iovec(data + i * size, size)
            header = self._headers[i].msg_hdr
            header.msg_name, header.msg_namelen = names + i * _SOCKADDR_IN, _SOCKADDR_IN
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
        self.peers = Peers(memoryview(self._names).cast("B"))

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
class SegmentOptions:
    """How to reach a segment; ``receive_buffer`` and ``largest`` in bytes."""

    name: str
    address: str
    port: int
    bind: str
    interface: str | None
    receive_buffer: int
    largest: int


class Segment:
    """One broadcast socket, open and checked."""

    def __init__(self, options: SegmentOptions) -> None:
        """Raises StartError with a remedy when this segment cannot be served from here."""
        self.options = options
        self.counters = SegmentCounters(options.name)
        self.warnings: list[str] = []
        self._to = (options.address, options.port)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._prepare()
        except BaseException:
            self.sock.close()
            raise
        self.receiver = Receiver(self.sock.fileno(), options.largest)
        self._sendto = self.sock.sendto

    def _prepare(self) -> None:
        options, sock = self.options, self.sock
        self._pin_to_interface()
        self._require_broadcast()
        if options.bind not in ("0.0.0.0", options.address):
            raise StartError(
                "bind_misses_broadcast",
                f"segment {options.name}: a socket bound to {options.bind} receives no broadcast",
                f"leave out 'bind', or bind to 0.0.0.0 or to {options.address} itself",
            )
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._size_buffers()
        try:
            sock.bind((options.bind, options.port))
        except OSError as error:
            raise self._bind_failed(error) from error

    def _pin_to_interface(self) -> None:
        options = self.options
        if options.interface is None:
            return
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, options.interface.encode() + b"\0")
        except OSError as error:
            if error.errno == errno.ENODEV:
                there = ", ".join(name for _, name in socket.if_nameindex())
                raise StartError(
                    "no_interface",
                    f"segment {options.name}: there is no interface {options.interface}",
                    f"name one of: {there}; or wait until it is up",
                ) from error
            raise StartError(
                "interface_refused",
                f"segment {options.name}: cannot use interface {options.interface}: {error.strerror}",
                "run as root or with CAP_NET_RAW, or leave out 'interface'",
            ) from error

    def _require_broadcast(self) -> None:
        """Ask the kernel's routing: to a broadcast address it lets only sockets connect that may broadcast."""
        options = self.options
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            if options.interface is not None:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, options.interface.encode() + b"\0")
            try:
                probe.connect((options.address, options.port))
            except OSError as error:
                if error.errno == errno.EACCES:
                    return
                raise StartError(
                    "no_route",
                    f"segment {options.name}: no way to {options.address}: {error.strerror}",
                    "name the interface of the segment with 'interface:', or give it an address or a default route",
                ) from error
        raise StartError(
            "no_broadcast_address",
            f"segment {options.name}: {options.address} is not a broadcast address of this host",
            "use 255.255.255.255, or the broadcast address that 'ip -4 address' shows behind 'brd'",
        )

    def _size_buffers(self) -> None:
        options, sock = self.options, self.sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
        if self._buffer() < options.receive_buffer:
            try:
                sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, options.receive_buffer)
            except PermissionError:
                self.warnings.append(
                    f"segment {options.name}: the kernel grants a receive buffer of {self._buffer()} bytes, "
                    f"{options.receive_buffer} were asked for; a burst may be lost. "
                    f"Remedy: sysctl -w net.core.rmem_max={options.receive_buffer}"
                )

        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        with contextlib.suppress(PermissionError):
            sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER)

    def _buffer(self) -> int:
        """The receive buffer in force; the kernel reports twice what it grants."""
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2

    def _bind_failed(self, error: OSError) -> StartError:
        options = self.options
        where = f"{options.bind}:{options.port}"
        if error.errno == errno.EADDRINUSE:
            return StartError(
                "port_in_use",
                f"segment {options.name}: port {where} is in use by a program that does not share it",
                f"find it with 'ss -ulnp sport = :{options.port}'; every BCCN program must set SO_REUSEADDR",
            )
        if error.errno == errno.EACCES:
            return StartError(
                "port_refused",
                f"segment {options.name}: not allowed to bind {where}",
                "use a port above 1023, or give the daemon CAP_NET_BIND_SERVICE",
            )
        return StartError(
            "bind_failed",
            f"segment {options.name}: cannot bind {where}: {error.strerror}",
            "check 'bind' and 'port' of this segment",
        )

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
