"""Matches the sockets passed by systemd's socket units with the configuration.

A socket is matched by its type and address, not by its position. Each must serve something that is configured, else
the start is refused; a configured socket that is not passed is opened here. A passed socket's file and mode belong to
its unit.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, NoReturn

from bccnd import log
from bccnd.core.formats.bus_address import read_address
from bccnd.errors import StartError
from bccnd.net.listen import listen_bus, listen_tcp
from bccnd.net.segment import Segment, SegmentOptions
from bccnd.net.segment_opening import UdpOptions, bound_device, interface_name, peer_name

_INET: Final = (socket.AF_INET, socket.AF_INET6)
#: errors that a sandboxed service gets for a segment
_SANDBOX_ERRORS: Final = ("no_socket", "no_route", "no_interface", "interface_refused")


class _PassedSocket(NamedTuple):
    name: str
    sock: socket.socket

    @property
    def device(self) -> str:
        try:
            return bound_device(self.sock)
        except OSError:
            return ""

    @property
    def address_text(self) -> str:
        """The address, for messages."""
        address = self.sock.getsockname()
        if self.sock.family in _INET:
            interface = partial(interface_name, self.sock)
            return peer_name(address, interface) + (f" on {self.device}" if self.device else "")
        if isinstance(address, bytes):
            return "@" + address[1:].decode("utf-8", "backslashreplace")
        return str(address)


class ActivatedSockets:
    """The passed sockets, each with its use.

    ``stored`` holds the descriptors that the previous daemon stored: those with a name that ``is_stored`` accepts, and
    those on which nothing can listen. ``served`` lists their uses in words. ``service`` is whether a
    service manager started this process; remedies depend on it.
    """

    def __init__(
        self,
        passed: Iterable[tuple[str, int]] = (),
        *,
        service: bool = False,
        is_stored: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self._is_stored = is_stored
        self.stored: list[tuple[str, int]] = []
        self.served: list[str] = []
        self._buses: list[_PassedSocket] = []
        self._segments: list[_PassedSocket] = []
        self._metrics: list[_PassedSocket] = []
        self._unknown: list[_PassedSocket] = []
        self._bus_of: dict[str, _PassedSocket] = {}
        self._segment_of: dict[str, _PassedSocket] = {}
        for name, descriptor in passed:
            self._classify(name, descriptor)
        self._all = [*self._buses, *self._segments, *self._metrics, *self._unknown]
        self._service = service or bool(self._all)

    def _classify(self, name: str, descriptor: int) -> None:
        from systemd.daemon import is_socket, is_socket_inet  # installed wherever sockets are passed

        if self._is_stored(name) or not is_socket(descriptor):
            self.stored.append((name, descriptor))
            return
        one = _PassedSocket(name, socket.socket(fileno=descriptor))
        if is_socket(descriptor, socket.AF_UNIX, socket.SOCK_SEQPACKET, listening=1):
            self._buses.append(one)
        elif is_socket_inet(descriptor, type=socket.SOCK_STREAM, listening=1):
            self._metrics.append(one)
        elif is_socket_inet(descriptor, type=socket.SOCK_DGRAM):
            self._segments.append(one)
        elif is_socket(descriptor, listening=1) or is_socket(descriptor, type=socket.SOCK_DGRAM):
            self._unknown.append(one)
        else:  # a connection
            self.stored.append((name, one.sock.detach()))

    def assign(self, buses: Sequence[str], segments: Sequence[UdpOptions], metrics: bool) -> None:
        """Match sockets with the configuration: buses by address, segments by name, port and address.

        Raises StartError for a socket that serves nothing.
        """
        for one in self._unknown:
            _refuse_kind(one)
        self._bus_of = {text: one for text in buses for one in self._buses if _listens_at(one.sock, text)}
        for one in _unused(self._buses, self._bus_of.values()):
            missing = [text for text in buses if text not in self._bus_of]
            _refuse(one, "bus.path", " and ".join(missing), "ListenSequentialPacket=", "bus.path or bus.sockets")
        self._segment_of = _pair(self._segments, segments)
        for one in _unused(self._segments, self._segment_of.values()):
            missing = [_describe(options) for options in segments if options.name not in self._segment_of]
            _refuse(one, "segments", " and ".join(missing), "ListenDatagram= and BindToDevice=", "segments")
        if not metrics:
            for one in self._metrics:
                _refuse(one, "metrics.listen", "off", "ListenStream=", "metrics.listen")

    # -- opening: a passed socket, or else a new one

    def open_bus(self, text: str, mode: int, gid: int | None) -> tuple[socket.socket, bool]:
        """Return a listening socket of the bus, and whether the daemon owns its file. Raises StartError."""
        one = self._bus_of.pop(text, None)
        if one is None:
            return listen_bus(read_address(text), mode, gid), True
        self.served.append(f"bus {text}")
        one.sock.setblocking(False)
        _warn_of_mode(text, mode, gid)
        return one.sock, False

    def open_segment(self, options: SegmentOptions, logged_drops: int | None = None) -> Segment:
        """Open a segment; see `Segment` for the drops. Raises StartError."""
        one = self._segment_of.pop(options.name, None)
        if one is not None:
            self.served.append(f"segment {options.name}")
            return Segment(options, one.sock, logged_drops)
        try:
            return Segment(options)
        except StartError as error:
            if not self._service or error.reason not in _SANDBOX_ERRORS:
                raise
            listen = f"{'[::]' if ':' in options.address else '0.0.0.0'}:{options.port}"
            raise StartError(
                error.reason,
                error.detail,
                f"{error.remedy}. If the service has no network (PrivateNetwork=, RestrictAddressFamilies=), pass the "
                f"segment by a socket unit: ListenDatagram={listen}, Broadcast=yes, Service=bccnd.service; or give it "
                "the network with a drop-in: PrivateNetwork=no, RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 "
                "AF_NETLINK",
            ) from error

    def open_metrics(self, listen: tuple[str, int] | None) -> list[socket.socket]:
        """Return the sockets for metrics: the passed ones, else one at ``listen``. Raises StartError."""
        if self._metrics:
            found = [one.sock for one in self._metrics]
            self.served += [f"metrics {one.address_text}" for one in self._metrics]
            for sock in found:
                sock.setblocking(False)
            return found
        if listen is None:
            return []
        try:
            return [listen_tcp(*listen)]
        except StartError as error:
            if not self._service:
                raise
            unit = "or pass it by a socket unit with ListenStream= and Service=bccnd.service"
            raise StartError(error.reason, error.detail, f"{error.remedy}; {unit}") from error

    def close(self) -> None:
        """Close all passed sockets."""
        for one in self._all:
            one.sock.close()


def _unused(passed: Iterable[_PassedSocket], used: Iterable[_PassedSocket]) -> Iterator[_PassedSocket]:
    taken = [id(one) for one in used]
    return (one for one in passed if id(one) not in taken)


def _listens_at(sock: socket.socket, text: str) -> bool:
    """Whether a socket listens at a bus address."""
    wanted, address = read_address(text), sock.getsockname()
    if isinstance(wanted, int):
        return sock.fileno() == wanted
    if isinstance(wanted, str) and isinstance(address, str):
        # /var/run is a link to /run.
        return os.path.realpath(wanted) == os.path.realpath(address)
    return bool(wanted == address)


def _pair(passed: Iterable[_PassedSocket], segments: Sequence[UdpOptions]) -> dict[str, _PassedSocket]:
    """Match segments with sockets, the most specific rule first."""
    rules: tuple[Callable[[_PassedSocket, UdpOptions], bool], ...] = (
        lambda one, options: one.name == options.name,
        lambda one, options: one.device == options.interface,
        lambda one, options: one.sock.getsockname()[0] == options.address,
        lambda _one, _options: True,
    )
    pairs: dict[str, _PassedSocket] = {}
    unmatched = list(passed)
    for matches in rules:
        for options in segments:
            found = [one for one in unmatched if _may_serve(one, options) and matches(one, options)]
            if found and options.name not in pairs:
                pairs[options.name] = found[0]
                unmatched.remove(found[0])
    return pairs


def _may_serve(one: _PassedSocket, options: UdpOptions) -> bool:
    elsewhere = one.device and options.interface and one.device != options.interface
    return one.sock.family == options.family and one.sock.getsockname()[1] == options.port and not elsewhere


def _describe(options: UdpOptions) -> str:
    on = f" on {options.interface}" if options.interface else ""
    return f"{options.name} ({options.family.name[3:].lower()} port {options.port}{on})"


def _refuse(one: _PassedSocket, key: str, configured: str, setting: str, keys: str) -> NoReturn:
    expected = f"the configuration has {configured}" if configured else "the configuration does not use it"
    raise StartError(
        "socket_mismatch",
        f"{key}: the socket unit {one.name} listens at {one.address_text}, {expected}",
        f"make them agree: {setting} of the socket unit, or {keys}; then restart both",
    )


def _refuse_kind(one: _PassedSocket) -> NoReturn:
    raise StartError(
        "socket_mismatch",
        f"the socket unit {one.name} passes a socket of a type that is not used: {_name(one.sock.family)}, "
        f"{_name(one.sock.type)}, at {one.address_text}",
        "ListenSequentialPacket= is for the bus, ListenDatagram= with a port for segments, ListenStream= with a port "
        "for metrics",
    )


def _name(number: int) -> str:
    """Return the name of an address family or socket type, or its number."""
    return str(getattr(number, "name", number))


def _warn_of_mode(path: str, mode: int, gid: int | None) -> None:
    """Log a warning if a passed socket's file has another mode or group than configured."""
    try:
        info = os.stat(path)
    except OSError:  # an abstract address, or a file outside of the service's mounts
        return
    found = stat.S_IMODE(info.st_mode)
    if found != mode or gid not in (None, info.st_gid):
        wanted = f"mode {mode:04o}{'' if gid is None else f' and group {gid}'}"
        log.event(
            "doubtful_setting",
            f"bus: the socket unit of {path} sets mode {found:04o} and group {info.st_gid}, the configuration has "
            f"{wanted}; the unit's are in force",
            remedy="make SocketMode= and SocketGroup= agree with bus.mode and bus.group",
            setting="bus.mode",
        )
