"""The TCP connections of this process, which a library has opened and tells no descriptor of.

Law: they are found by looking, told what the kernel shall do with them, asked what it still has in hand, and cut; none
is kept, and nothing is opened for it, as strangers may have taken up all descriptors. The library may close one while
we look at it: then the same is done to another of its connections, or to none, and either does no harm.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import resource
import socket
import struct
import termios
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

_DESCRIPTORS: Final = "/proc/self/fd"
#: seconds of silence after which a peer is asked whether it is there, and how often, at which distance
_IDLE: Final = 5
_PROBES: Final = 3
_DISTANCE: Final = 1
#: bytes that the kernel takes in hand before it has sent them; what waits beyond can still be counted and thrown away
_UNSENT: Final = 16_384
#: how often the kernel asks again for a connection that is being made: 1 and 3 s after the first time. After 7 s it has
#: failed, and is dialled anew: else it would ask ever more seldom, and find a network that has healed a minute later.
_REPEATS: Final = 2
#: the first byte of struct tcp_info while a connection is being made
_BEING_MADE: Final = 2
#: where the kernel tells how many bytes were confirmed: tcpi_bytes_acked in struct tcp_info (Linux 4.2)
_ACKED: Final = 120


class Flow(NamedTuple):
    """Bytes that were given to the kernel, and those that the peer has confirmed."""

    given: int
    gone: int


class Connection(NamedTuple):
    """One of them, by the ends that NNG knows as well; ``inode`` is unlike that of any other that there is. One that
    listens has no ``peer``."""

    inode: int
    local: str
    peer: str
    sock: socket.socket

    def guard(self, patience: float) -> None:
        """Have the kernel give it up when the peer has not taken what it was sent within ``patience`` seconds, or does
        not answer at all."""
        for option, value in (
            (socket.TCP_USER_TIMEOUT, max(1, int(patience * 1000))),
            (socket.TCP_KEEPIDLE, _IDLE),
            (socket.TCP_KEEPINTVL, _DISTANCE),
            (socket.TCP_KEEPCNT, _PROBES),
            (socket.TCP_NOTSENT_LOWAT, _UNSENT),
        ):
            self.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def flow(self) -> Flow | None:
        """What has become of what was given to it; None if it was closed meanwhile, by a thread of NNG."""
        try:
            (waiting,) = struct.unpack("i", fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4)))
            (gone,) = struct.unpack_from("Q", self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), _ACKED)
        except OSError:
            return None
        return Flow(gone + waiting, gone)

    def cut(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


def connections() -> Iterator[Connection]:
    """All connections and listeners of this process, each good until the next is asked for."""
    for inode, sock in _sockets():
        with suppress(OSError, ValueError):  # one that is being made, or has gone
            listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            peer = "" if listens else _text(sock.getpeername())
            yield Connection(inode, _text(sock.getsockname()), peer, sock)


def hasten() -> None:
    """Have the kernel give up soon what is being dialled without an answer."""
    for _, sock in _sockets():
        with suppress(OSError):
            if sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _BEING_MADE:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _REPEATS)


def _sockets() -> Iterator[tuple[int, socket.socket]]:
    """The TCP sockets of this process with their inodes. It takes no descriptor."""
    for name in descriptors():
        try:
            kind, _, number = os.readlink(f"{_DESCRIPTORS}/{name}").partition(":")
            if kind != "socket":
                continue
            sock = socket.socket(fileno=name)
        except OSError:
            continue
        try:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                yield int(number.strip("[]")), sock
        except (OSError, ValueError):
            continue
        finally:
            sock.detach()


def descriptors() -> Sequence[int]:
    """The numbers of those that this process has; where none is left to look with, all that there may be."""
    try:
        return [int(name) for name in os.listdir(_DESCRIPTORS)]
    except OSError:
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_descriptor_limit(wanted: int) -> int:
    """Let this process have so many descriptors, if the system does; how many it may have."""
    soft, hard = (
        wanted if one == resource.RLIM_INFINITY else one for one in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    most = min(wanted, hard)
    if soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (ValueError, OSError):  # not allowed
            return soft
    return max(soft, most)


def set_descriptor_limit(wanted: int) -> None:
    """Let this process have so many descriptors and no more; where that is not allowed, leave it as it is."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most)
        )


def _text(address: tuple[str, int]) -> str:
    host, port = address[:2]
    found = ipaddress.ip_address(host.partition("%")[0])
    if found.version == 6:
        return f"{found.ipv4_mapped}:{port}" if found.ipv4_mapped else f"[{found}]:{port}"
    return f"{host}:{port}"
