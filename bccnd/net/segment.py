"""A segment: the socket that sends to it and receives from it, in batches.

Law: what goes wrong after the socket was opened is counted and leaves it open; what the kernel dropped is asked of
the kernel. Source: BCCN, DELIVERY.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final, overload

from bccnd.core.bccn1 import MAX_RECEIVE
from bccnd.core.counters import SegmentCounters
from bccnd.native.inflight import BroadcastSender, InflightState
from bccnd.native.inflight import Receiver as LedgerReceiver
from bccnd.native.sockio import Receiver
from bccnd.net.udp import (
    UdpOptions,
    adopt_udp,
    destination,
    grow_receive_buffer,
    grow_send_buffer,
    interface_name,
    open_udp,
    pack_address,
    peer_name,
)

#: bytes that may wait to be sent: some thousand datagrams that clients publish at once
SEND_BUFFER: Final = 4 << 20
#: from <asm-generic/socket.h>; the socket module does not name them
_SO_TIMESTAMPNS: Final = 35
_SO_MEMINFO: Final = 55
_MEMINFO_DROPS: Final = 8
_MEMINFO_SIZE: Final = 36
_SOCKADDR_IN: Final = 16
_SOCKADDR_IN6: Final = 28


class Peers(Sequence[str]):
    """The senders of a batch, as `peer_name` writes them; text is made only for those that are asked for. ``names``
    holds the sockaddr of each."""

    def __init__(
        self, names: memoryview, family: socket.AddressFamily, interface: Callable[[int], str] = socket.if_indextoname
    ) -> None:
        self._names = names
        self._size: int = _SOCKADDR_IN
        self._name: Callable[[memoryview, int], str] = _name4
        if family == socket.AF_INET6:
            self._size, self._name = _SOCKADDR_IN6, partial(_name6, interface=interface)

    @classmethod
    def of(cls, names: memoryview, size: int) -> Peers:
        """Of names that take ``size`` bytes each, from whatever socket they are."""
        return cls(names, socket.AF_INET if size == _SOCKADDR_IN else socket.AF_INET6, str)

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


def _name6(names: memoryview, start: int, interface: Callable[[int], str]) -> str:
    port, address = struct.unpack_from("!2xH4x16s", names, start)
    (scope,) = struct.unpack_from("=I", names, start + 24)
    return peer_name((socket.inet_ntop(socket.AF_INET6, address), port, 0, scope), interface)


@dataclass(frozen=True)
class SegmentOptions(UdpOptions):
    """How to reach a segment, and what the kernel keeps for us meanwhile; both sizes in bytes."""

    _: KW_ONLY
    receive_buffer: int = 64 << 20
    largest: int = MAX_RECEIVE


class Segment:
    """One socket on a segment, open and checked."""

    def __init__(self, options: SegmentOptions, passed: socket.socket | None = None) -> None:
        """Raises StartError with a remedy when this segment cannot be served from here.

        ``passed`` is a socket that was bound by whoever started us; without one, a new one is opened.
        """
        self.options = options
        self.counters = SegmentCounters(options.name)
        self.warnings: list[str] = []
        if passed is None:
            self.sock = open_udp(options)
        else:
            self.sock = passed
            self.warnings += adopt_udp(passed, options)
        self._to = destination(options, self.sock)
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if passed is None:  # it may be less than usual that is wanted
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
        #: bytes that the kernel keeps for us
        self.granted = grow_receive_buffer(self.sock, options.receive_buffer)
        if self.granted < options.receive_buffer:
            remedy = f"sysctl -w net.core.rmem_max={options.receive_buffer}"
            if passed is not None:
                remedy = f"set ReceiveBuffer={options.receive_buffer} in its socket unit, or {remedy}; restart both"
            self.warnings.append(
                f"segment {options.name}: the kernel grants a receive buffer of {self.granted} bytes, "
                f"{options.receive_buffer} were asked for; a burst may be lost. Remedy: {remedy}"
            )
        if passed is not None and (drops := self.kernel_drops()):
            self.warnings.append(
                f"segment {options.name}: before this start the kernel has dropped {drops} datagrams on the socket "
                "that was passed. Remedy: if it is more from start to start, raise ReceiveBuffer= in the socket unit"
            )
        grow_send_buffer(self.sock, SEND_BUFFER)
        self._name_size = _SOCKADDR_IN if options.family == socket.AF_INET else _SOCKADDR_IN6
        self.receiver = Receiver(self.sock.fileno(), options.largest, self._name_size)
        #: the senders of the batch that the receiver has received last
        self.peers = self._peers(self.receiver.names)
        self._caster: BroadcastSender | None = None
        self._was_cast = False

    def send_through(self, inflight: InflightState, number: int, *, was_cast: bool) -> None:
        """Send through a ledger from now on, as its segment of that number; ``was_cast`` if what is worked through
        again now went out before."""
        self._caster = BroadcastSender(inflight, number, self.fileno(), pack_address(self._to))
        self._was_cast = was_cast

    def receive_into(self, inflight: InflightState, number: int) -> None:
        """Receive into a ledger from now on, as its segment of that number; nothing is worked through again."""
        self._was_cast = False
        options, name = self.options, self.options.name.encode()
        self.receiver = LedgerReceiver(inflight, number, name, self.fileno(), options.largest, self._name_size)
        self.peers = self._peers(self.receiver.names)

    def _peers(self, names: memoryview) -> Peers:
        return Peers(names, self.options.family, partial(interface_name, self.sock))

    def fileno(self) -> int:
        return self.sock.fileno()

    def broadcast(self, datagram: bytes) -> str | None:
        """Send a datagram to everyone on the segment, at once or not at all.

        Returns None, or the errno's name if the kernel refused; both are counted.
        """
        if self._was_cast:
            return None
        failed = self._send(datagram) if self._caster is None else self._caster.cast(datagram)
        if failed:
            name = errno.errorcode.get(failed, "UNKNOWN")
            self.counters.send_failed(name)
            return name
        self.counters.sent += 1
        return None

    def _send(self, datagram: bytes) -> int:
        try:
            self.sock.sendto(datagram, self._to)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def kernel_drops(self) -> int:
        """Datagrams that the kernel dropped for want of room in this socket's buffer, since it was opened."""
        info = self.sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO_SIZE)
        drops: int = struct.unpack_from("=I", info, _MEMINFO_DROPS * 4)[0]
        return drops

    def close(self) -> None:
        self.sock.close()
