"""Listeners and diallers: URLs become connections, again and again."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from bccnd.gateways.base import cannot_listen, format_address
from bccnd.gateways.nng.connection import Connection, Owner
from bccnd.gateways.nng.tls import Contexts
from bccnd.gateways.status import Peer

#: seconds for an attempt to connect to one address; seconds until the next one at first, and what doubling ends at
_CONNECT_TIMEOUT, _SHORTEST, _LONGEST = 5.0, 0.1, 5.0
#: connections that have not greeted yet: beyond that the oldest is ended
MAX_GREETING: Final = 256
#: connections that wait in the kernel to be accepted, and seconds without accepting when descriptors are short
_BACKLOG, _PAUSE = 512, 0.1


class Endpoints:
    """Makes connections for ``owner``, which get the ``limits`` of `Connection`; ``contexts`` are those for TLS."""

    def __init__(self, owner: Owner, contexts: Contexts | None, **limits: Any) -> None:
        self._owner, self._contexts, self._limits = owner, contexts, limits
        self._loop = asyncio.get_running_loop()
        self._greeting: list[Connection] = []
        self._tasks: list[asyncio.Task[None]] = []

    def listen(self, url: str) -> None:
        """Accept connections at a URL. Raises StartError."""
        try:
            self._tasks.append(self._loop.create_task(self._accept(_listen(url), url)))
        except OSError as error:
            remedy = "see 'ss -tlnp' for the program that has the port, and 'ip address' for the addresses of this host"
            raise cannot_listen(f"at {url}", error, remedy) from error

    def dial(self, url: str) -> None:
        """Connect to a URL, and again whenever that is lost."""
        self._tasks.append(self._loop.create_task(self._dial(url)))

    async def _accept(self, listener: socket.socket, url: str) -> None:
        listener.setblocking(False)
        while True:
            try:
                sock, address = await self._loop.sock_accept(listener)
            except OSError:  # descriptors or memory are short, or the other end has gone already
                await asyncio.sleep(_PAUSE)
                continue
            self._greeting = [one for one in self._greeting if not (one.open or one.ended.done())]
            if len(self._greeting) >= MAX_GREETING:
                self._greeting.pop(0).close("no_id")
            with suppress(OSError):
                self._greeting.append(self._make(sock, address, url, accepted=True))
            await asyncio.sleep(0)  # others have their turn

    async def _dial(self, url: str) -> None:
        pause = _SHORTEST / 2
        while True:
            began = self._loop.time()
            with suppress(OSError):
                sock, address = await _connect(url)
                await self._make(sock, address, url, accepted=False).ended
            pause = _SHORTEST if self._loop.time() - began > _LONGEST else min(2 * pause, _LONGEST)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret

    def _make(self, sock: socket.socket, address: Any, url: str, *, accepted: bool) -> Connection:
        """Make a connection of a connected socket. Raises OSError where it has gone meanwhile."""
        try:
            if url.startswith("tls") and self._contexts is not None:
                sock = self._contexts.wrap(sock, urlsplit(url).hostname, accepted=accepted)
            peer = Peer("127.0.0.1:0" if unix_path(url) else format_address(address), url)
            return Connection(sock, self._owner, peer, accepted=accepted, **self._limits)
        except OSError:
            sock.close()
            raise


def unix_path(url: str) -> str:
    """Return the address of the Unix socket of a URL; empty for TCP."""
    scheme, _, rest = url.partition("://")
    return {"ipc": rest, "abstract": f"\0{rest}"}.get(scheme, "")


def _listen(url: str) -> socket.socket:
    """Open a listener. Raises OSError."""
    if path := unix_path(url):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            if probe.connect_ex(path) == errno.ECONNREFUSED and os.path.exists(path):
                os.unlink(path)  # of a process that has ended
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(path)
        sock.listen(_BACKLOG)
        return sock
    host, port = urlsplit(url).hostname, urlsplit(url).port
    found = socket.getaddrinfo(None if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, address = found[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG, dualstack_ipv6=family == socket.AF_INET6)


async def _connect(url: str) -> tuple[socket.socket, Any]:
    """Connect to the first address of a URL that answers. Raises OSError."""
    loop, where = asyncio.get_running_loop(), urlsplit(url)
    found: list[Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", unix_path(url))]
    if not unix_path(url):
        found = await loop.getaddrinfo(where.hostname, where.port, type=socket.SOCK_STREAM)
    trouble = OSError()
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                await loop.sock_connect(sock, address)
            return sock, address
        except OSError as error:
            sock.close()
            trouble = error
    raise trouble
