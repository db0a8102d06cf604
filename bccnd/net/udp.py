"""UDP sockets that reach a segment: broadcast and multicast, IPv4 and IPv6, on one interface or as the routing says.

Law: a socket is opened only if it can do its work; where it cannot, the error says why and what to do. Source: BCCN,
DELIVERY.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import struct
from dataclasses import KW_ONLY, dataclass
from typing import Any

from bccnd.errors import StartError

#: <asm-generic/socket.h>, <linux/in.h> and <linux/in6.h>; the socket module does not name them
_SO_RCVBUFFORCE = 33
_IP_MULTICAST_ALL = 49
_IPV6_MULTICAST_ALL = 29
_ANY = ("0.0.0.0", "::")
#: IPv6 groups of this scope (RFC 4291, 2.7) or a smaller one exist once for every interface
_LINK_SCOPE = 2


@dataclass(frozen=True)
class UdpOptions:
    """Where to send to and where to listen. ``bind`` None takes everything that is sent to ``address``;
    ``hop_limit`` counts routers for multicast, 1 stays on the segment. ``name`` is for messages."""

    name: str
    address: str
    port: int
    _: KW_ONLY
    bind: str | None = None
    interface: str | None = None
    hop_limit: int = 1

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    @property
    def multicast(self) -> bool:
        return ipaddress.ip_address(self.address).is_multicast


def open_udp(options: UdpOptions) -> socket.socket:
    """A non-blocking socket bound to the segment's port, which other programs of this host may share.

    Raises StartError with a remedy when the segment cannot be reached from here.
    """
    sock = socket.socket(options.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        _pin_to_interface(sock, options)
        if options.multicast:
            _join(sock, options)
        else:
            _require_broadcast(options)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Else a socket that listens everywhere gets all groups that anybody on this host has joined.
        if options.family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
        _bind(sock, options)
    except BaseException:
        sock.close()
        raise
    return sock


def grow_receive_buffer(sock: socket.socket, size: int) -> int:
    """Have the kernel keep ``size`` bytes for us, beyond its limits if we may; how many it grants."""
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
        with contextlib.suppress(PermissionError):
            sock.setsockopt(socket.SOL_SOCKET, option, size)
        # The kernel counts its own overhead too, and reports twice what it grants.
        granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        if granted >= size:
            break
    return granted


def destination(options: UdpOptions) -> tuple[Any, ...]:
    """What `sendto` wants to know."""
    if options.family == socket.AF_INET:
        return options.address, options.port
    return options.address, options.port, 0, _index(options)


def peer_name(address: tuple[Any, ...]) -> str:
    """The sender of a datagram, as `recvfrom` gives it, in the form ``address:port`` or ``[address%interface]:port``;
    the interface is named where the address means nothing without it."""
    if len(address) == 2:
        return f"{address[0]}:{address[1]}"
    text, port, _, scope = address
    if scope:
        with contextlib.suppress(OSError):  # an interface that has just gone
            text += "%" + socket.if_indextoname(scope)
    return f"[{text}]:{port}"


def _index(options: UdpOptions) -> int:
    return socket.if_nametoindex(options.interface) if options.interface is not None else 0


def _pin_to_interface(sock: socket.socket, options: UdpOptions) -> None:
    if options.interface is None:
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, options.interface.encode() + b"\0")
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


def _require_broadcast(options: UdpOptions) -> None:
    """Ask the kernel's routing: to a broadcast address it lets only sockets connect that may broadcast."""
    with socket.socket(options.family, socket.SOCK_DGRAM) as probe:
        _pin_to_interface(probe, options)
        try:
            probe.connect((options.address, options.port))
        except OSError as error:
            if error.errno == errno.EACCES:
                return
            raise _no_route(options, error) from error
    raise StartError(
        "no_broadcast_address",
        f"segment {options.name}: {options.address} is not a broadcast address of this host",
        "use 255.255.255.255, the broadcast address that 'ip -4 address' shows behind 'brd', or a multicast group",
    )


def _join(sock: socket.socket, options: UdpOptions) -> None:
    """Join the group on the interface, and send to it there. Our own datagrams come back, as with broadcast, because
    other programs of this host listen too."""
    group = ipaddress.ip_address(options.address).packed
    index = _index(options)
    if options.family == socket.AF_INET6 and not index and group[1] & 0xF <= _LINK_SCOPE:
        raise StartError(
            "no_interface",
            f"segment {options.name}: {options.address} is another group on every interface",
            "name the interface of the segment with 'interface:'",
        )
    try:
        if options.family == socket.AF_INET:
            request = struct.pack("=4s4si", group, b"\0" * 4, index)  # struct ip_mreqn
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, options.hop_limit)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, struct.pack("=16si", group, index))
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, options.hop_limit)
    except OSError as error:
        raise _no_route(options, error) from error


def _no_route(options: UdpOptions, error: OSError) -> StartError:
    return StartError(
        "no_route",
        f"segment {options.name}: no way to {options.address}: {error.strerror}",
        "name the interface of the segment with 'interface:', or give it an address or a default route",
    )


def _bind(sock: socket.socket, options: UdpOptions) -> None:
    if options.bind not in (None, *_ANY, options.address):
        raise StartError(
            "bind_misses_broadcast",
            f"segment {options.name}: a socket bound to {options.bind} receives no broadcast and no multicast",
            f"leave out 'bind', or bind to 0.0.0.0 or to {options.address} itself",
        )
    if options.bind == options.address or (options.bind is None and options.multicast):
        # A group takes nothing but what is sent to it, so that another segment on the same port stays apart.
        where = destination(options)
    else:
        where = (_ANY[options.family == socket.AF_INET6], options.port)
    try:
        sock.bind(where)
    except OSError as error:
        raise _bind_failed(options, where, error) from error


def _bind_failed(options: UdpOptions, where: tuple[Any, ...], error: OSError) -> StartError:
    place = peer_name(where)
    if error.errno == errno.EADDRINUSE:
        return StartError(
            "port_in_use",
            f"segment {options.name}: port {place} is in use by a program that does not share it",
            f"find it with 'ss -ulnp sport = :{options.port}'; every BCCN program must set SO_REUSEADDR",
        )
    if error.errno == errno.EACCES:
        return StartError(
            "port_refused",
            f"segment {options.name}: not allowed to bind {place}",
            "use a port above 1023, or give the daemon CAP_NET_BIND_SERVICE",
        )
    return StartError(
        "bind_failed",
        f"segment {options.name}: cannot bind {place}: {error.strerror}",
        "check 'bind' and 'port' of this segment",
    )
