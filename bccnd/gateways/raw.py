"""NNG BUS sockets in raw mode, over the C interface that pynng carries along.

Law: nothing here waits, and nothing is kept of what a stranger sends. A message on the link is the datagram and nothing
else; the number of the pipe it came by stands beside it, in a header that never leaves this process. What NNG tells in
threads of its own is put into a queue, and who owns the socket is woken.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pynng

from bccnd.errors import BccndError

_ffi: Any = pynng.ffi
_lib: Any = pynng.lib

#: bytes of the largest message that NNG takes in. More than any datagram, so that what is too large is counted by us;
#: who announces still more is cut off before there is memory for it.
MAX_MESSAGE: Final = 1 << 17
#: messages that may wait to be taken from NNG, which drops what is beyond: the most that it allows
ROOM: Final = 8192
#: milliseconds until a dialler tries again: the first time, and what doubling ends at
SHORTEST_MS: Final = 100
LONGEST_MS: Final = 5000
#: threads of NNG: by default two for each processor. What one link takes needs no more than these.
_THREADS: Final = {"TASK": 2, "POLLER": 1, "EXPIRE": 1, "RESOLVER": 2}

#: what has happened to a pipe: it is there, it has gone, it was too many
ADDED: Final = "added"
GONE: Final = "gone"
REFUSED: Final = "refused"


#: the reason of NngError where another socket listens at an address
ADDRESS_TAKEN: Final = str(_lib.NNG_EADDRINUSE)


class NngError(BccndError):
    """NNG has refused something; ``reason`` is its number for it."""


class Pipe(NamedTuple):
    """What has happened to a connection, by its number. ``place`` is that of the listener or dialler it belongs to;
    ``handed``, ``sent`` and ``received`` are what was counted when it went."""

    what: str
    number: int
    place: str
    listens: bool
    peer: str
    local: str
    handed: int = 0
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0


@dataclass
class Counts:
    """What NNG has counted: of a pipe, or of a listener or dialler with its reasons."""

    numbers: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.numbers.get(name, 0)


@dataclass
class Snapshot:
    """The statistics of NNG at one moment: of pipes by their number, of listeners and diallers together."""

    pipes: dict[int, Counts] = field(default_factory=dict)
    places: Counts = field(default_factory=Counts)


@dataclass(frozen=True)
class Tls:
    """What a listener or dialler shows and asks for; texts in PEM. Who asks for nobody's certificate takes anybody."""

    ca: str
    certificate: str
    key: str
    asks: bool
    #: the name in the certificate of who is dialled
    name: str = ""


def check(code: int) -> None:
    """Raises NngError unless all is well."""
    if code:
        raise NngError(str(code), _ffi.string(_lib.nng_strerror(code)).decode())


def address(sockaddr: Any) -> str:
    """An address as NNG tells it, in the form ``address:port`` or ``[address]:port``; who is on this host by other
    means than TCP is called 127.0.0.1:0."""
    family = sockaddr.s_family
    if family == _lib.NNG_AF_INET:
        packed = int(sockaddr.s_in.sa_addr).to_bytes(4, "little")
        return f"{ipaddress.IPv4Address(packed)}:{_swapped(sockaddr.s_in.sa_port)}"
    if family == _lib.NNG_AF_INET6:
        found = ipaddress.IPv6Address(bytes(sockaddr.s_in6.sa_addr))
        if found.ipv4_mapped is not None:
            return f"{found.ipv4_mapped}:{_swapped(sockaddr.s_in6.sa_port)}"
        return f"[{found}]:{_swapped(sockaddr.s_in6.sa_port)}"
    return "127.0.0.1:0"


def _swapped(port: int) -> int:
    """From the order of bytes that networks have."""
    return (port & 0xFF) << 8 | port >> 8


#: sockets by their number, for what NNG calls from its threads
_sockets: dict[int, BusSocket] = {}


class BusSocket:
    """A BUS socket with its listeners and diallers. ``send_room`` messages may wait for one peer, and ``max_accepted``
    connections may stand at the listeners. ``wake`` is called from other threads when `events` has grown."""

    def __init__(self, *, send_room: int, max_accepted: int, wake: Callable[[], None]) -> None:
        for name, count in _THREADS.items():
            _lib.nng_init_set_parameter(getattr(_lib, f"NNG_INIT_NUM_{name}_THREADS"), count)
        opened = _ffi.new("nng_socket *")
        check(_lib.nng_bus0_open_raw(opened))
        self._socket = opened[0]
        self._wake = wake
        self._max_accepted = max_accepted
        self._places: dict[int, str] = {}
        self._admitted: dict[int, Pipe] = {}
        self._accepted = 0
        #: what has happened to pipes, the oldest first
        self.events: deque[Pipe] = deque()
        #: messages given to NNG for all pipes
        self.handed = 0
        #: of these, not for the pipe that they came by
        self.spared: dict[int, int] = {}
        self._message = _ffi.new("nng_msg **")
        self._header = _ffi.new("uint32_t *")
        self._configs: list[Any] = []
        _sockets[self._socket.id] = self
        for event in (_lib.NNG_PIPE_EV_ADD_PRE, _lib.NNG_PIPE_EV_ADD_POST, _lib.NNG_PIPE_EV_REM_POST):
            check(_lib.nng_pipe_notify(self._socket, event, _lib._nng_pipe_cb, _ffi.NULL))  # noqa: SLF001
        for name, value in (("send-buffer", send_room), ("recv-buffer", ROOM)):
            check(_lib.nng_socket_set_int(self._socket, name.encode(), value))
        check(_lib.nng_socket_set_size(self._socket, b"recv-size-max", MAX_MESSAGE))
        check(_lib.nng_socket_set_ms(self._socket, b"reconnect-time-min", SHORTEST_MS))
        check(_lib.nng_socket_set_ms(self._socket, b"reconnect-time-max", LONGEST_MS))

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to receive."""
        found = _ffi.new("int *")
        check(_lib.nng_socket_get_int(self._socket, b"recv-fd", found))
        return int(found[0])

    # -- where it leads to

    def listen(self, url: str, tls: Tls | None = None) -> None:
        """Take connections at a place. Raises NngError."""
        made = _ffi.new("nng_listener *")
        check(_lib.nng_listener_create(made, self._socket, url.encode()))
        self._places[_lib.nng_listener_id(made[0])] = url
        if url.startswith(("tcp", "tls")):
            check(_lib.nng_listener_set_bool(made[0], b"tcp-nodelay", True))
        if tls is not None:
            check(_lib.nng_listener_set_ptr(made[0], b"tls-config", self._config(tls, _lib.NNG_TLS_MODE_SERVER)))
        try:
            check(_lib.nng_listener_start(made[0], 0))
        except NngError:
            self._places.pop(_lib.nng_listener_id(made[0]))
            _lib.nng_listener_close(made[0])
            raise

    def dial(self, url: str, tls: Tls | None = None) -> None:
        """Connect to a place, and again whenever that is lost. Raises NngError."""
        made = _ffi.new("nng_dialer *")
        check(_lib.nng_dialer_create(made, self._socket, url.encode()))
        self._places[-_lib.nng_dialer_id(made[0])] = url
        if url.startswith(("tcp", "tls")):
            check(_lib.nng_dialer_set_bool(made[0], b"tcp-nodelay", True))
        if tls is not None:
            check(_lib.nng_dialer_set_ptr(made[0], b"tls-config", self._config(tls, _lib.NNG_TLS_MODE_CLIENT)))
        check(_lib.nng_dialer_start(made[0], _lib.NNG_FLAG_NONBLOCK))

    def _config(self, tls: Tls, mode: int) -> Any:
        made = _ffi.new("nng_tls_config **")
        check(_lib.nng_tls_config_alloc(made, mode))
        config = made[0]
        self._configs.append(config)
        check(
            _lib.nng_tls_config_auth_mode(
                config, _lib.NNG_TLS_AUTH_MODE_REQUIRED if tls.asks else _lib.NNG_TLS_AUTH_MODE_NONE
            )
        )
        check(_lib.nng_tls_config_ca_chain(config, tls.ca.encode(), _ffi.NULL))
        check(_lib.nng_tls_config_own_cert(config, tls.certificate.encode(), tls.key.encode(), _ffi.NULL))
        if tls.name:
            check(_lib.nng_tls_config_server_name(config, tls.name.encode()))
        return config

    # -- messages

    def receive(self) -> tuple[int, bytes] | None:
        """The number of the pipe and the next message that came; None while there is none."""
        if _lib.nng_recvmsg(self._socket, self._message, _lib.NNG_FLAG_NONBLOCK):
            return None
        message = self._message[0]
        _lib.nng_msg_header_trim_u32(message, self._header)
        data = _ffi.buffer(_lib.nng_msg_body(message), _lib.nng_msg_len(message))[:]
        _lib.nng_msg_free(message)
        return self._header[0], data

    def send(self, way: int, datagram: bytes) -> None:
        """Give a message to all pipes, but for the one it came by; 0: to all. For a pipe whose queue is full NNG drops
        it without a word."""
        _lib.nng_msg_alloc(self._message, 0)
        message = self._message[0]
        _lib.nng_msg_append(message, datagram, len(datagram))
        if way in self._admitted:
            _lib.nng_msg_header_append_u32(message, way)
            self.spared[way] = self.spared.get(way, 0) + 1
        self.handed += 1
        if _lib.nng_sendmsg(self._socket, message, _lib.NNG_FLAG_NONBLOCK):
            _lib.nng_msg_free(message)

    def end(self, number: int) -> None:
        """Close a pipe; who has dialled tries again."""
        _lib.nng_pipe_close(_pipe(number))

    def snapshot(self) -> Snapshot:
        """What NNG has counted by now."""
        found = _ffi.new("nng_stat **")
        made = Snapshot()
        if _lib.nng_stats_get(found):
            return made
        try:
            scope = _lib.nng_stat_child(found[0])
            while scope != _ffi.NULL:
                name = _ffi.string(_lib.nng_stat_name(scope))
                if name == b"pipe":
                    counts = _numbers(scope)
                    if counts["socket"] == self._socket.id:
                        made.pipes[counts["id"]] = counts
                elif name in (b"listener", b"dialer"):
                    counts = _numbers(scope)
                    if counts["socket"] == self._socket.id:
                        for key, value in counts.numbers.items():
                            made.places.numbers[key] = made.places[key] + value
                scope = _lib.nng_stat_next(scope)
        finally:
            _lib.nng_stats_free(found[0])
        return made

    def close(self) -> None:
        _sockets.pop(self._socket.id, None)  # nobody wants to hear of the pipes that go now
        _lib.nng_close(self._socket)
        for config in self._configs:
            _lib.nng_tls_config_free(config)

    # -- what NNG's threads tell

    def on_pipe(self, pipe: Any, event: int) -> None:
        """A connection comes or goes; called by a thread of NNG, one at a time for one pipe."""
        number = _lib.nng_pipe_id(pipe)
        if event == _lib.NNG_PIPE_EV_ADD_PRE:
            listener = _lib.nng_listener_id(_lib.nng_pipe_listener(pipe))
            listens = listener > 0
            place = listener if listens else -_lib.nng_dialer_id(_lib.nng_pipe_dialer(pipe))
            made = Pipe(
                *(ADDED, number, self._places.get(place, ""), listens),
                *(_address(pipe, b"remote-address"), _address(pipe, b"local-address")),
            )
            if listens and self._accepted >= self._max_accepted:
                _lib.nng_pipe_close(pipe)
                self._tell(made._replace(what=REFUSED))
                return
            self._accepted += listens
            self._admitted[number] = made
        elif number in self._admitted:
            if event == _lib.NNG_PIPE_EV_ADD_POST:
                self._tell(self._admitted[number]._replace(handed=self.handed))
                return
            made = self._admitted.pop(number)
            self._accepted -= made.listens
            counts = self.snapshot().pipes.get(number, Counts())
            handed = self.handed - self.spared.pop(number, 0)
            sent, size, received = (counts[name] for name in ("tx_msgs", "tx_bytes", "rx_msgs"))
            self._tell(made._replace(what=GONE, handed=handed, sent=sent, sent_bytes=size, received=received))

    def _tell(self, event: Pipe) -> None:
        self.events.append(event)
        self._wake()


def _numbers(scope: Any) -> Counts:
    """All statistics below one that are numbers."""
    found: dict[str, int] = {}
    each = _lib.nng_stat_child(scope)
    while each != _ffi.NULL:
        if _lib.nng_stat_type(each) != _lib.NNG_STAT_STRING:
            found[_ffi.string(_lib.nng_stat_name(each)).decode()] = _lib.nng_stat_value(each)
        each = _lib.nng_stat_next(each)
    return Counts(found)


def _pipe(number: int) -> Any:
    made = _ffi.new("nng_pipe *")
    made.id = number
    return made[0]


def _address(pipe: Any, name: bytes) -> str:
    found = _ffi.new("nng_sockaddr *")
    return address(found[0]) if not _lib.nng_pipe_get_addr(pipe, name, found) else "127.0.0.1:0"


# The one entrance that pynng has been compiled with. Its own sockets would use it; we make none of those.
@_ffi.def_extern(name="_nng_pipe_cb")  # type: ignore[untyped-decorator]
def _on_pipe(pipe: Any, event: int, _argument: Any) -> None:
    owner = _sockets.get(_lib.nng_pipe_socket(pipe).id)
    if owner is not None:
        owner.on_pipe(pipe, event)
