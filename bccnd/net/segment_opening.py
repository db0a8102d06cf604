"""Opens UDP sockets for a segment: broadcast or multicast, IPv4 or IPv6, on one interface or as routed.

Invariant: a socket is opened only if it can send and receive; otherwise the error has the cause and the remedy.
Source: BCCN, DELIVERY.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from bccnd.errors import StartError

#: <asm-generic/socket.h>, <linux/in.h> and <linux/in6.h>; the socket module does not name them
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32
_SO_BINDTOIFINDEX = 62
_IP_MULTICAST_ALL = 49
_IPV6_MULTICAST_ALL = 29
#: <linux/socket.h>: look up the route without sending
_MSG_PROBE: Final = 0x10
#: <linux/sockios.h> and struct ifreq of <linux/if.h>
_SIOCGIFNAME: Final = 0x8910
_SIOCGIFINDEX: Final = 0x8933
_IFREQ: Final = struct.Struct("=16si20x")
_IFNAME_SIZE: Final = 16
_ANY = ("0.0.0.0", "::")
#: IPv6 groups of this scope (RFC 4291, 2.7) or a smaller one are separate on each interface
_LINK_SCOPE = 2


@dataclass(frozen=True)
class UdpOptions:
    """Where to send and to listen.

    Without ``bind`` everything sent to ``address`` is received. ``hop_limit`` is that of multicast: 1 stays on the
    segment. ``name`` is for messages.
    """

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
    """Open a non-blocking socket bound to the segment's port, which other programs may share. Raises StartError."""
    try:
        sock = socket.socket(options.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise _no_socket(options, error) from error
    try:
        _pin_to_interface(sock, options)
        if options.multicast:
            if options.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _join(sock, options)
        else:
            _require_broadcast(options)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        _share(sock)
        _bind(sock, options)
    except BaseException:
        sock.close()
        raise
    return sock


def adopt_udp(sock: socket.socket, options: UdpOptions) -> list[str]:
    """Configure a passed, bound socket for this segment, and return warnings.

    The socket may belong to another network namespace, so the kernel is asked through it alone. Raises StartError, and
    leaves the socket open.
    """
    warnings = []
    _check_bind(options)
    place = sock.getsockname()
    if place[0] not in (*_ANY, options.address):
        raise StartError(
            "bind_misses_broadcast",
            f"segment {options.name}: the passed socket is bound to {place[0]}: it receives no broadcast and no "
            "multicast",
            f"make the socket unit listen at {_ANY[':' in options.address]} or at {options.address}, and restart it",
        )
    sock.setblocking(False)
    try:
        device = bound_device(sock)
    except OSError as error:
        raise StartError(
            "no_interface",
            f"segment {options.name}: the passed socket is bound to an interface that no longer exists",
            "restart the socket unit",
        ) from error
    if options.interface is None:
        if device:
            warnings.append(
                f"segment {options.name}: the passed socket is bound to interface {device}, by its unit or an earlier "
                f"start. Remedy: set interface: {device}, or restart the socket unit"
            )
    elif device != options.interface:
        _pin_to_interface(sock, options, passed=True)
    if options.multicast:
        if place[0] == "::" and not sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
            warnings.append(
                f"segment {options.name}: the passed socket receives IPv4 too. "
                "Remedy: BindIPv6Only=ipv6-only in the socket unit"
            )
        _join(sock, options)
    else:
        try:
            _require_broadcast_of(sock, options)
        except StartError as error:
            if error.reason != "no_route":
                raise
            # It receives, and local clients are served; sending works as soon as there is a route.
            warnings.append(f"{error.detail}; nothing is sent until the host has a route. Remedy: {error.remedy}")
    _share(sock)
    return warnings


def rebind_udp(sock: socket.socket, options: UdpOptions) -> None:
    """Bind a passed socket to the interface that has the configured name now. Raises StartError and OSError."""
    before = _last_index(sock)
    if before != interface_index(sock, options.interface or ""):
        _pin_to_interface(sock, options, passed=True)
    if options.multicast:
        _leave(sock, options, before)
        _join(sock, options)


def reopen_udp(sock: socket.socket, options: UdpOptions) -> socket.socket:
    """Open a socket in place of one whose interface was deleted. Raises StartError."""
    if options.multicast:
        _leave(sock, options, _last_index(sock))
    return open_udp(options)


def bound_device(sock: socket.socket) -> str:
    """Return the name of the interface that a socket is bound to, empty for none. Raises OSError if it is gone."""
    name = sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _IFNAME_SIZE)
    return name.rstrip(b"\0").decode("utf-8", "surrogateescape")


def bound_index(sock: socket.socket) -> int:
    """Return the number of the interface that a socket is bound to; 0 for none, or if it is gone."""
    with contextlib.suppress(OSError):
        return _index(sock)
    return 0


def interface_index(sock: socket.socket, name: str) -> int:
    """Return an interface's number in the network namespace of a socket. Raises OSError."""
    _, index = _IFREQ.unpack(fcntl.ioctl(sock, _SIOCGIFINDEX, _IFREQ.pack(_encode_interface(name), 0)))
    return int(index)


def _encode_interface(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")  # the kernel permits any bytes


def interface_name(sock: socket.socket, index: int) -> str:
    """Return an interface's name in the network namespace of a socket. Raises OSError."""
    found, _ = _IFREQ.unpack(fcntl.ioctl(sock, _SIOCGIFNAME, _IFREQ.pack(b"", index)))
    return str(found.rstrip(b"\0").decode("utf-8", "surrogateescape"))


def grow_receive_buffer(sock: socket.socket, size: int) -> int:
    """Enlarge the receive buffer to ``size`` bytes, beyond the limit if permitted; return the granted size.

    Never shrinks it: the parent process may have been granted more.
    """
    return _grow(sock, socket.SO_RCVBUF, _SO_RCVBUFFORCE, size)


def grow_send_buffer(sock: socket.socket, size: int) -> int:
    """Enlarge the send buffer likewise."""
    return _grow(sock, socket.SO_SNDBUF, _SO_SNDBUFFORCE, size)


def _grow(sock: socket.socket, option: int, force: int, size: int) -> int:
    if (granted := _size(sock, option)) < size:
        with contextlib.suppress(PermissionError):
            sock.setsockopt(socket.SOL_SOCKET, force, size)
        if (granted := _size(sock, option)) < size:
            # The kernel cuts the size to its limit, which may be below the present size: try on another socket.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trial:
                trial.setsockopt(socket.SOL_SOCKET, option, size)
                larger = _size(trial, option) > granted
            if larger:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
                granted = _size(sock, option)
    return granted


def _size(sock: socket.socket, option: int) -> int:
    # The kernel adds its overhead and reports twice the size.
    return sock.getsockopt(socket.SOL_SOCKET, option) // 2


def destination(options: UdpOptions) -> tuple[Any, ...]:
    """Return the address for `sendto`. It names no interface: the socket is bound to the one that is configured."""
    where = options.address, options.port
    return where if options.family == socket.AF_INET else (*where, 0, 0)


def pack_address(address: tuple[Any, ...]) -> bytes:
    """Convert the result of `destination` to a sockaddr_in or sockaddr_in6."""
    if len(address) == 2:
        return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", address[1], socket.inet_aton(address[0]))
    host, port, flow, scope = address
    packed = socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16s", port, flow, packed) + struct.pack("=I", scope)


def peer_name(address: tuple[Any, ...], interface: Callable[[int], str] = socket.if_indextoname) -> str:
    """Format a sender's address: ``address:port`` or ``[address%interface]:port``, the latter for link-local ones.

    ``interface`` converts an interface's number to its name.
    """
    if len(address) == 2:
        return f"{address[0]}:{address[1]}"
    text, port, _, scope = address
    if scope:
        with contextlib.suppress(OSError):  # the interface was just removed
            text += "%" + interface(scope)
    return f"[{text}]:{port}"


def _index(sock: socket.socket) -> int:
    """Return the number of the interface that a socket is bound to; 0 for none. Raises OSError."""
    name = bound_device(sock)
    return interface_index(sock, name) if name else 0


def _share(sock: socket.socket) -> None:
    """Share the port with other programs, and receive no other multicast groups."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # By default a socket bound to any address receives all groups that any program of this host has joined.
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)


def _pin_to_interface(sock: socket.socket, options: UdpOptions, *, passed: bool = False) -> None:
    if options.interface is None:
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _encode_interface(options.interface) + b"\0")
    except OSError as error:
        if error.errno == errno.ENODEV:
            names = "those of 'ip link'"
            if not passed:  # else it may be another network namespace
                with contextlib.suppress(OSError):  # a sandbox may forbid it
                    names = ", ".join(name for _, name in socket.if_nameindex())
            raise StartError(
                "no_interface",
                f"segment {options.name}: no interface {options.interface}",
                f"use one of: {names}; or wait until it is up",
            ) from error
        raise StartError(
            "interface_refused",
            f"segment {options.name}: cannot use interface {options.interface}: {error.strerror}",
            f"set BindToDevice={options.interface} in the socket unit, and restart it"
            if passed
            else "run as root or with CAP_NET_RAW, or remove 'interface'",
        ) from error


def _require_broadcast(options: UdpOptions) -> None:
    """Check the address: the kernel refuses to connect to a broadcast address without SO_BROADCAST."""
    with socket.socket(options.family, socket.SOCK_DGRAM) as probe:
        _pin_to_interface(probe, options)
        _expect_refusal(options, lambda: probe.connect((options.address, options.port)))


def _require_broadcast_of(sock: socket.socket, options: UdpOptions) -> None:
    """Check the same on a receiving socket, which must not be connected; sends nothing."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 0)
    try:
        _expect_refusal(options, lambda: sock.sendto(b"", _MSG_PROBE, (options.address, options.port)))
    finally:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)


def _expect_refusal(options: UdpOptions, attempt: Callable[[], object]) -> None:
    try:
        attempt()
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
    """Join the group on the interface, and send to it there.

    Multicast loopback stays on: other programs of this host listen too.
    """
    group = ipaddress.ip_address(options.address).packed
    index = _index(sock)
    if options.family == socket.AF_INET6 and not index and group[1] & 0xF <= _LINK_SCOPE:
        raise StartError(
            "no_interface",
            f"segment {options.name}: {options.address} is a different group on each interface",
            "set 'interface:' of this segment",
        )
    if options.family == socket.AF_INET:
        level, join, request = (
            socket.IPPROTO_IP,
            socket.IP_ADD_MEMBERSHIP,
            struct.pack("=4s4si", group, b"\0" * 4, index),
        )
    else:
        level, join, request = socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, struct.pack("=16si", group, index)
    try:
        try:
            sock.setsockopt(level, join, request)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # a passed socket has joined at an earlier start
                raise
        if options.family == socket.AF_INET:
            sock.setsockopt(level, socket.IP_MULTICAST_IF, request)
            sock.setsockopt(level, socket.IP_MULTICAST_TTL, options.hop_limit)
        else:
            sock.setsockopt(level, socket.IPV6_MULTICAST_IF, index)
            sock.setsockopt(level, socket.IPV6_MULTICAST_HOPS, options.hop_limit)
    except OSError as error:
        raise _no_route(options, error) from error


def _last_index(sock: socket.socket) -> int:
    """Return the number of the interface that a socket is bound to, which may be gone; 0 for none."""
    with contextlib.suppress(OSError):  # an older kernel
        return sock.getsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX)
    return 0


def _leave(sock: socket.socket, options: UdpOptions, index: int) -> None:
    """Leave the group on an interface that may be gone.

    The kernel keeps a membership in the socket when the interface is gone. The socket's close would then end that of
    another socket on an interface that has the same number by then.
    """
    group = ipaddress.ip_address(options.address).packed
    with contextlib.suppress(OSError):
        if options.family == socket.AF_INET:
            request = struct.pack("=4s4si", group, b"\0" * 4, index)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, request)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_LEAVE_GROUP, struct.pack("=16si", group, index))


def _no_route(options: UdpOptions, error: OSError) -> StartError:
    return StartError(
        "no_route",
        f"segment {options.name}: no route to {options.address}: {error.strerror}",
        "set 'interface:' of this segment, or give the interface an address or a default route",
    )


def _no_socket(options: UdpOptions, error: OSError) -> StartError:
    return StartError(
        "no_socket",
        f"segment {options.name}: cannot open a socket: {error.strerror}",
        f"allow this process to open {options.family.name} sockets",
    )


def _check_bind(options: UdpOptions) -> None:
    if options.bind not in (None, *_ANY, options.address):
        raise StartError(
            "bind_misses_broadcast",
            f"segment {options.name}: a socket bound to {options.bind} receives no broadcast and no multicast",
            f"remove 'bind', or bind to 0.0.0.0 or to {options.address} itself",
        )


def _bind(sock: socket.socket, options: UdpOptions) -> None:
    _check_bind(options)
    if options.bind == options.address or (options.bind is None and options.multicast):
        # Bound to its group, it does not receive another segment on the same port.
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
