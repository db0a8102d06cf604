"""Looks up the addresses of a host, with the interface of an IPv6 address (``fe80::1%eth0``)."""

from __future__ import annotations

import errno
import socket
from typing import Any


def look_up(host: str, port: int, kind: socket.SocketKind) -> list[tuple[socket.AddressFamily, Any]]:
    """Return the family and the address of each socket for a host; an empty one stands for all addresses of this host.

    Waits for name servers if ``host`` is a name. Raises OSError, which names an interface that does not exist.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=kind, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        interface = host.partition("%")[2]
        if interface:
            raise OSError(errno.ENODEV, f"this host has no interface {interface}") from error
        raise OSError(
            errno.EADDRNOTAVAIL, f"the host {host} is not found: {getattr(error, 'strerror', error)}"
        ) from error
    return [(family, address) for family, _, _, _, address in found]
