"""Sockets that were opened by whoever started us (systemd's socket units): what each one is, and what it serves.

Law: a passed socket is known by what it is and where it listens, not by its place among the others. Each serves one
thing of the configuration or the start is refused; what is configured and was not passed is opened as usual. Who has
made a socket looks after its file and its mode.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, NoReturn

from bccnd import log
from bccnd.core.address import read_address
from bccnd.errors import StartError
from bccnd.net.listen import listen_bus, listen_tcp
from bccnd.net.segment import Segment, SegmentOptions
from bccnd.net.udp import UdpOptions, bound_device, interface_name, peer_name

#: names under which we have descriptors stored; they are no business of this module
_STORED: Final = re.compile(r"(client|state|sources)-[0-9]+|ledger")
_INET: Final = (socket.AF_INET, socket.AF_INET6)
#: why a segment cannot be had by a service that is shut off from the network
_SHUT_OFF: Final = ("no_socket", "no_route", "no_interface", "interface_refused")


class _Passed(NamedTuple):
    name: str
    sock: socket.socket

    @property
    def device(self) -> str:
        try:
            return bound_device(self.sock)
        except OSError:
            return ""

    @property
    def place(self) -> str:
        """Where it listens, for people."""
        address = self.sock.getsockname()
        if self.sock.family in _INET:
            interface = partial(interface_name, self.sock)
            return peer_name(address, interface) + (f" on {self.device}" if self.device else "")
        if isinstance(address, bytes):
            return "@" + address[1:].decode("utf-8", "backslashreplace")
        return str(address)


class ActivatedSockets:
    """What was passed, and what each serves.

    ``stored`` holds what is no socket to listen on: descriptors that a predecessor has had stored. ``served`` says for
    people what was put to use. ``service`` is whether a service manager has started us, for remedies.
    """

    def __init__(self, passed: Iterable[tuple[str, int]] = (), *, service: bool = False) -> None:
        self.stored: list[tuple[str, int]] = []
        self.served: list[str] = []
        self._buses: list[_Passed] = []
        self._segments: list[_Passed] = []
        self._metrics: list[_Passed] = []
        self._strange: list[_Passed] = []
        self._bus_of: dict[str, _Passed] = {}
        self._segment_of: dict[str, _Passed] = {}
        for name, descriptor in passed:
            self._sort(name, descriptor)
        self._all = [*self._buses, *self._segments, *self._metrics, *self._strange]
        self._service = service or bool(self._all)

    def _sort(self, name: str, descriptor: int) -> None:
        from systemd.daemon import is_socket, is_socket_inet  # it is there where anything was passed

        if _STORED.fullmatch(name) or not is_socket(descriptor):
            self.stored.append((name, descriptor))
            return
        one = _Passed(name, socket.socket(fileno=descriptor))
        if is_socket(descriptor, socket.AF_UNIX, socket.SOCK_SEQPACKET, listening=1):
            self._buses.append(one)
        elif is_socket_inet(descriptor, type=socket.SOCK_STREAM, listening=1):
            self._metrics.append(one)
        elif is_socket_inet(descriptor, type=socket.SOCK_DGRAM):
            self._segments.append(one)
        elif is_socket(descriptor, listening=1) or is_socket(descriptor, type=socket.SOCK_DGRAM):
            self._strange.append(one)
        else:  # a connection
            self.stored.append((name, one.sock.detach()))

    def assign(self, buses: Sequence[str], segments: Sequence[UdpOptions], metrics: bool) -> None:
        """Find out which socket serves what: buses by address, segments by name, port and address.

        Raises StartError with a remedy for a socket that serves nothing.
        """
        for one in self._strange:
            _refuse_kind(one)
        self._bus_of = {text: one for text in buses for one in self._buses if _is_at(one.sock, text)}
        for one in _unused(self._buses, self._bus_of.values()):
            missing = [text for text in buses if text not in self._bus_of]
            _refuse(one, "bus.path", " and ".join(missing), "ListenSequentialPacket=", "bus.path or bus.sockets")
        self._segment_of = _pair(self._segments, segments)
        for one in _unused(self._segments, self._segment_of.values()):
            missing = [_place(options) for options in segments if options.name not in self._segment_of]
            _refuse(one, "segments", " and ".join(missing), "ListenDatagram= and BindToDevice=", "segments")
        if not metrics:
            for one in self._metrics:
                _refuse(one, "metrics.listen", "off", "ListenStream=", "metrics.listen")

    # -- opening: what was passed, or else a new one

    def open_bus(self, text: str, mode: int, gid: int | None) -> tuple[socket.socket, bool]:
        """A listening socket of the bus, and whether its file is ours to remove. Raises StartError."""
        one = self._bus_of.pop(text, None)
        if one is None:
            return listen_bus(read_address(text), mode, gid), True
        self.served.append(f"bus {text}")
        one.sock.setblocking(False)
        _compare(text, mode, gid)
        return one.sock, False

    def open_segment(self, options: SegmentOptions) -> Segment:
        """A segment. Raises StartError."""
        one = self._segment_of.pop(options.name, None)
        if one is not None:
            self.served.append(f"segment {options.name}")
            return Segment(options, one.sock)
        try:
            return Segment(options)
        except StartError as error:
            if not self._service or error.reason not in _SHUT_OFF:
                raise
            listen = peer_name(("::" if ":" in options.address else "0.0.0.0", options.port, 0, 0)[: _fields(options)])
            raise StartError(
                error.reason,
                error.detail,
                f"{error.remedy}. A service that is shut off from the network (PrivateNetwork=, "
                "RestrictAddressFamilies=) gets its segment from a socket unit: ListenDatagram="
                f"{listen}, Broadcast=yes, Service=bccnd.service; or open the service with a drop-in: "
                "PrivateNetwork=no, RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
            ) from error

    def open_metrics(self, listen: tuple[str, int] | None) -> list[socket.socket]:
        """The sockets to serve metrics on: those that were passed, else one at ``listen``. Raises StartError."""
        if self._metrics:
            found = [one.sock for one in self._metrics]
            self.served += [f"metrics {one.place}" for one in self._metrics]
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
            unit = "or have it passed by a socket unit with ListenStream= and Service=bccnd.service"
            raise StartError(error.reason, error.detail, f"{error.remedy}; {unit}") from error

    def close(self) -> None:
        """Close what was not taken."""
        for one in self._all:
            one.sock.close()


def _unused(passed: Iterable[_Passed], used: Iterable[_Passed]) -> Iterator[_Passed]:
    taken = [id(one) for one in used]
    return (one for one in passed if id(one) not in taken)


def _is_at(sock: socket.socket, text: str) -> bool:
    """Whether a socket listens at an address of the bus."""
    wanted, address = read_address(text), sock.getsockname()
    if isinstance(wanted, int):
        return sock.fileno() == wanted
    if isinstance(wanted, str) and isinstance(address, str):
        # /var/run and /run are the same.
        return os.path.realpath(wanted) == os.path.realpath(address)
    return bool(wanted == address)


def _pair(passed: Iterable[_Passed], segments: Sequence[UdpOptions]) -> dict[str, _Passed]:
    """Which socket serves which segment, the surest pairs first."""
    rules: tuple[Callable[[_Passed, UdpOptions], bool], ...] = (
        lambda one, options: one.name == options.name,
        lambda one, options: one.device == options.interface,
        lambda one, options: one.sock.getsockname()[0] == options.address,
        lambda _one, _options: True,
    )
    pairs: dict[str, _Passed] = {}
    left = list(passed)
    for fits in rules:
        for options in segments:
            found = [one for one in left if _may_serve(one, options) and fits(one, options)]
            if found and options.name not in pairs:
                pairs[options.name] = found[0]
                left.remove(found[0])
    return pairs


def _may_serve(one: _Passed, options: UdpOptions) -> bool:
    elsewhere = one.device and options.interface and one.device != options.interface
    return one.sock.family == options.family and one.sock.getsockname()[1] == options.port and not elsewhere


def _fields(options: UdpOptions) -> int:
    """Of how many fields an address of a segment's family is."""
    return 2 if options.family == socket.AF_INET else 4


def _place(options: UdpOptions) -> str:
    on = f" on {options.interface}" if options.interface else ""
    return f"{options.name} ({options.family.name[3:].lower()} port {options.port}{on})"


def _refuse(one: _Passed, key: str, configured: str, setting: str, keys: str) -> NoReturn:
    says = f"the configuration says {configured}" if configured else "the configuration has no use for it"
    raise StartError(
        "socket_mismatch",
        f"{key}: the socket unit {one.name} listens at {one.place}, {says}",
        f"make them agree: {setting} of the socket unit, or {keys}; then restart both",
    )


def _refuse_kind(one: _Passed) -> NoReturn:
    raise StartError(
        "socket_mismatch",
        f"the socket unit {one.name} passes a socket for which there is no use: {_name(one.sock.family)}, "
        f"{_name(one.sock.type)}, at {one.place}",
        "ListenSequentialPacket= is for the bus, ListenDatagram= with a port for segments, ListenStream= with a port "
        "for metrics",
    )


def _name(number: int) -> str:
    """What a family or a type is called; not all have a name here."""
    return str(getattr(number, "name", number))


def _compare(path: str, mode: int, gid: int | None) -> None:
    """Say when a socket file that is not ours admits others than the configuration says."""
    try:
        info = os.stat(path)
    except OSError:  # an abstract address, or a file that this service cannot see
        return
    found = stat.S_IMODE(info.st_mode)
    if found != mode or gid not in (None, info.st_gid):
        wanted = f"mode {mode:04o}{'' if gid is None else f' and group {gid}'}"
        log.event(
            "doubtful_setting",
            f"bus: {path} was made by its socket unit with mode {found:04o} and group {info.st_gid}, the configuration "
            f"says {wanted}; the unit decides",
            remedy="make SocketMode= and SocketGroup= agree with bus.mode and bus.group",
            setting="bus.mode",
        )
