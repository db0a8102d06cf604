"""Sockets for the tests of packets and of the in-flight state: a segment, and a connection of a client."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from tests.support import cannot_here, wait

#: from <asm-generic/socket.h>; the socket module does not name them
SO_SNDBUFFORCE: Final = 32
SO_TIMESTAMPNS: Final = 35
SOCKADDR_IN: Final = 16
SOCKADDR_IN6: Final = 28


@contextmanager
def udp(family: socket.AddressFamily = socket.AF_INET) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets of which the second sends to the first."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family, socket.SOCK_DGRAM) as ours, socket.socket(family, socket.SOCK_DGRAM) as theirs:
        try:
            ours.bind((host, 0))
        except OSError as error:
            cannot_here(f"no {host}: {error}")
        ours.setblocking(False)
        theirs.connect(ours.getsockname())
        yield ours, theirs


@contextmanager
def pair(room: int = 0) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection; the first has a send buffer of ``room`` bytes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        if room:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        yield ours, theirs


def read(sock: socket.socket, most: int = 1 << 30) -> list[bytes]:
    """The packets that are there, at most so many."""
    found: list[bytes] = []
    with suppress(BlockingIOError):
        while len(found) < most:
            found.append(sock.recv(1 << 20))
    return found


def take(receiver: Any, count: int) -> list[list[bytes]]:
    """Batches until so many datagrams have come."""
    batches: list[list[bytes]] = []

    def done() -> bool:
        with suppress(BlockingIOError):
            batches.append(receiver.receive())
        return sum(map(len, batches)) >= count

    wait(done, f"{count} datagrams")
    return batches


def until_readable(sock: socket.socket) -> None:
    wait(lambda: select.select([sock], [], [], 0)[0], "a datagram")
