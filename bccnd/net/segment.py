"""A segment: one socket that broadcasts datagrams and receives them in batches.

Errors after opening are counted and leave the socket open. Source: BCCN, DELIVERY.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Final, overload

from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.wire.bccn1 import MAX_RECEIVE
from bccnd.native.system.sockio import Receiver
from bccnd.net.segment_opening import (
    UdpOptions,
    adopt_udp,
    bound_device,
    bound_index,
    destination,
    grow_receive_buffer,
    grow_send_buffer,
    interface_index,
    interface_name,
    open_udp,
    pack_address,
    peer_name,
    rebind_udp,
    reopen_udp,
)
from bccnd.net.segment_sender import SegmentSender

#: bytes queued for sending: some thousand datagrams published at once
SEND_BUFFER: Final = 4 << 20
#: from <asm-generic/socket.h>; the socket module does not name them
_SO_TIMESTAMPNS: Final = 35
_SO_MEMINFO: Final = 55
_MEMINFO_DROPS: Final = 8
_MEMINFO_SIZE: Final = 36
_SOCKADDR_IN: Final = 16
_SOCKADDR_IN6: Final = 28


class Peers(Sequence[str]):
    """The senders of a batch, as text in the form of `peer_name`, made on access. ``names`` holds their sockaddrs."""

    def __init__(
        self, names: memoryview, family: socket.AddressFamily, interface: Callable[[int], str] = socket.if_indextoname
    ) -> None:
        self._names = names
        self._size: int = _SOCKADDR_IN
        self._name: Callable[[memoryview, int], str] = _name4
        if family == socket.AF_INET6:
            self._size, self._name = _SOCKADDR_IN6, partial(_name6, interface=interface)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        try:
            return self._name(self._names, index * self._size)
        except struct.error:  # beyond the last one
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
    """How to reach a segment; its receive buffer and its largest datagram, in bytes."""

    _: KW_ONLY
    receive_buffer: int = 64 << 20
    largest: int = MAX_RECEIVE


class Segment:
    """An open segment. ``warnings`` lists its limitations; ``interface`` is that of its socket, empty for none."""

    def __init__(
        self,
        options: SegmentOptions,
        passed: socket.socket | None = None,
        logged_drops: int | None = None,
    ) -> None:
        """Open the segment, or take over the socket ``passed`` by a socket unit. Raises StartError.

        ``logged_drops`` are the kernel's drops on a passed socket that an earlier daemon has logged, if that is known.
        """
        self.options = options
        self.counters = SegmentCounters(options.name)
        self.warnings: list[str] = []
        #: whether a socket unit has opened the socket, which outlives this process then
        self.passed = passed is not None
        if passed is None:
            self.sock = open_udp(options)
        else:
            self.sock = passed
            self.warnings += adopt_udp(passed, options)
        self.interface = options.interface or bound_device(self.sock)
        #: whether the socket is bound to the interface that has this name now
        self.up = True
        #: those of sockets that were replaced
        self._earlier_drops = 0
        self._destination = destination(options)
        #: bytes of the receive buffer
        self.granted = self._prepare(self.sock)
        if self.granted < options.receive_buffer:
            remedy = f"sysctl -w net.core.rmem_max={options.receive_buffer}"
            if passed is not None:
                remedy = f"set ReceiveBuffer={options.receive_buffer} in its socket unit, or {remedy}; restart both"
            self.warnings.append(
                f"segment {options.name}: the kernel limits the receive buffer to {self.granted} bytes instead of "
                f"{options.receive_buffer}: bursts may be lost. Remedy: {remedy}"
            )
        drops = self.kernel_drops()
        #: the kernel's drops that were logged
        self.logged_drops = drops if logged_drops is None else logged_drops
        if drops and logged_drops is None:
            self.warnings.append(
                f"segment {options.name}: the kernel dropped {drops} datagrams on the passed socket before this start. "
                "Remedy: if the number grows from start to start, raise ReceiveBuffer= in the socket unit"
            )
        self._address_size = _SOCKADDR_IN if options.family == socket.AF_INET else _SOCKADDR_IN6
        self.receiver = Receiver(self.sock.fileno(), options.largest, self._address_size)
        #: the senders of the last batch
        self.peers = self._peers(self.receiver.names)
        self.sender = SegmentSender(self.counters, self.sock.fileno(), pack_address(self._destination))

    def _prepare(self, sock: socket.socket) -> int:
        """Set a socket's options and buffers; return the bytes of its receive buffer."""
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if not self.passed:  # may also shrink it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.options.receive_buffer)
        grow_send_buffer(sock, SEND_BUFFER)
        return grow_receive_buffer(sock, self.options.receive_buffer)

    def interface_numbers(self) -> tuple[int, int]:
        """Return the numbers of the interface that the socket is bound to and of the one with its name; 0 for none."""
        try:
            named = interface_index(self.sock, self.interface)
        except OSError:
            named = 0
        return bound_index(self.sock), named

    def reopen(self) -> None:
        """Bind to the interface that has the name now; the descriptor stays, but no loop may watch it meanwhile.

        Datagrams in the old socket are lost. Raises StartError and OSError.
        """
        if self.passed:
            rebind_udp(self.sock, replace(self.options, interface=self.interface))
        else:
            # A bound socket can be bound to another interface with CAP_NET_RAW only, a new one without.
            with reopen_udp(self.sock, self.options) as sock:
                self.granted = self._prepare(sock)
                drops = self.kernel_drops()
                os.dup2(sock.fileno(), self.fileno(), inheritable=False)
            self._earlier_drops = drops
        self.counters.reopened += 1
        self.up = True

    def _peers(self, names: memoryview) -> Peers:
        return Peers(names, self.options.family, partial(interface_name, self.sock))

    def fileno(self) -> int:
        return self.sock.fileno()

    def kernel_drops(self) -> int:
        """Return the datagrams dropped because the receive buffer was full, since the socket was first opened."""
        info = self.sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO_SIZE)
        drops: int = struct.unpack_from("=I", info, _MEMINFO_DROPS * 4)[0]
        return self._earlier_drops + drops

    def close(self) -> None:
        self.sock.close()
