"""A segment: the socket that sends to it and receives from it, in batches.

Law: what goes wrong after the socket was opened is counted and leaves it open; what the kernel dropped is asked of
the kernel. Source: BCCN, DELIVERY.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, overload

from bccnd.core.bccn1 import MAX_RECEIVE
from bccnd.core.counters import SegmentCounters
from bccnd.leaf.packets import Receiver
from bccnd.net.udp import UdpOptions, destination, grow_receive_buffer, open_udp, peer_name

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


@dataclass(frozen=True)
class SegmentOptions(UdpOptions):
    """How to reach a segment, and what the kernel keeps for us meanwhile; both sizes in bytes."""

    _: KW_ONLY
    receive_buffer: int = 64 << 20
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
        #: bytes that the kernel keeps for us
        self.granted = grow_receive_buffer(self.sock, options.receive_buffer)
        if self.granted < options.receive_buffer:
            self.warnings.append(
                f"segment {options.name}: the kernel grants a receive buffer of {self.granted} bytes, "
                f"{options.receive_buffer} were asked for; a burst may be lost. "
                f"Remedy: sysctl -w net.core.rmem_max={options.receive_buffer}"
            )
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        with contextlib.suppress(PermissionError):
            self.sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER)
        name_size = _SOCKADDR_IN if options.family == socket.AF_INET else _SOCKADDR_IN6
        self.receiver = Receiver(self.sock.fileno(), options.largest, name_size)
        #: the senders of the batch that the receiver has received last
        self.peers = Peers(self.receiver.names, options.family)
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
