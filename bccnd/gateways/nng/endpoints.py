"""Listeners and diallers: URLs become connections, again and again."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from typing import Any, Final

from bccnd import log
from bccnd.core.formats.network_address import LinkUrl, parse_link_url
from bccnd.file_modes import stricter_umask
from bccnd.gateways.base import Tasks, cannot_listen, format_address, report_failure
from bccnd.gateways.nng.connection import LinkConnection, Owner
from bccnd.gateways.nng.tls import Contexts
from bccnd.net.host_lookup import look_up
from bccnd.snapshot import GatewayPeerState

#: seconds for an attempt to connect to one address; seconds until the next one at first, and what doubling ends at
_CONNECT_TIMEOUT, _SHORTEST, _LONGEST = 5.0, 0.1, 5.0
#: connections that have not greeted yet: beyond that the oldest is ended
MAX_GREETING: Final = 256
#: connections that wait in the kernel to be accepted, and seconds without accepting when descriptors are short
_BACKLOG, _PAUSE = 512, 0.1


class Endpoints:
    """Makes connections for ``owner``, which get the ``limits`` of `LinkConnection`; ``contexts`` are those for TLS."""

    def __init__(self, owner: Owner, contexts: Contexts | None, tasks: Tasks, **limits: Any) -> None:
        self._owner, self._contexts, self._tasks, self._limits = owner, contexts, tasks, limits
        self._loop = asyncio.get_running_loop()
        self._greeting: list[LinkConnection] = []

    def listen(self, url: str) -> None:
        """Accept connections at a URL. Raises StartError."""
        where = parse_link_url(url)
        try:
            listener = _listen(where)
        except OSError as error:
            remedy = "see 'ss -tlnp' for the program that has the port, and 'ip address' for the addresses of this host"
            raise cannot_listen(f"at {url}", error, remedy) from error
        self._tasks.start(self._accept(listener, url, where))

    def dial(self, url: str) -> None:
        """Connect to a URL, and again whenever that is lost."""
        self._tasks.start(self._dial(url, parse_link_url(url, dials=True)))

    async def _accept(self, listener: socket.socket, url: str, where: LinkUrl) -> None:
        with listener:
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
                try:
                    self._greeting.append(self._make(sock, address, url, where, accepted=True))
                except Exception as error:  # noqa: BLE001 - costs this connection only
                    report_failure(self._owner.status, error, f"a connection of {url}")
                await asyncio.sleep(0)  # others have their turn

    async def _dial(self, url: str, where: LinkUrl) -> None:
        pause = _SHORTEST / 2
        logged: set[str] = set()
        while True:
            began = self._loop.time()
            try:
                sock, address = await _connect(where)
                await self._make(sock, address, url, where, accepted=False).ended
                logged.clear()
            except Exception as error:  # noqa: BLE001 - the next attempt may succeed
                report_failure(self._owner.status, error, f"a connection of {url}")
                if isinstance(error, OSError) and (why := error.strerror or str(error) or "no answer") not in logged:
                    logged.add(why)
                    text = f"{url} cannot be reached: {why}; it is dialled again and again"
                    remedy = "check gateways.nng.dial, and that the other host listens there (docs/links.md)"
                    log.event("peer_unreachable", text, remedy=remedy, gateway="nng", peer=url)
            pause = _SHORTEST if self._loop.time() - began > _LONGEST else min(2 * pause, _LONGEST)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret

    def _make(self, sock: socket.socket, address: Any, url: str, where: LinkUrl, *, accepted: bool) -> LinkConnection:
        """Make a connection of a connected socket. Raises OSError where it has gone meanwhile."""
        try:
            if where.tls and self._contexts is not None:
                # A certificate is of an address, whatever the interface is called from which it is dialled.
                sock = self._contexts.wrap(sock, where.host.partition("%")[0], accepted=accepted)
            peer = GatewayPeerState("127.0.0.1:0" if where.path else format_address(address), url)
            return LinkConnection(sock, self._owner, peer, accepted=accepted, **self._limits)
        except BaseException:
            sock.close()
            raise


def _listen(where: LinkUrl) -> socket.socket:
    """Open a listener. Raises OSError."""
    if path := where.path:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            if probe.connect_ex(path) == errno.ECONNREFUSED and os.path.exists(path):
                os.unlink(path)  # of a process that has ended
        sock = socket.socket(socket.AF_UNIX)
        with stricter_umask(0o007):  # others may not connect
            sock.bind(path)
        sock.listen(_BACKLOG)
        return sock
    family, address = look_up(where.host, where.port, socket.SOCK_STREAM)[0]
    return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=family == socket.AF_INET6)


async def _connect(where: LinkUrl) -> tuple[socket.socket, Any]:
    """Connect to the first address of a URL that answers. Raises OSError."""
    loop = asyncio.get_running_loop()
    found: list[tuple[socket.AddressFamily, Any]] = [(socket.AF_UNIX, where.path)]
    if not where.path:
        found = await loop.run_in_executor(None, look_up, where.host, where.port, socket.SOCK_STREAM)
    trouble = OSError()
    for family, address in found:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            trouble = error
        except asyncio.CancelledError:  # the gateway ends meanwhile
            sock.close()
            raise
        else:
            return sock, address
    raise trouble
