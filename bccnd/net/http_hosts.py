"""Checks the Host header of HTTP requests, against DNS rebinding.

A foreign web page in a browser on this host can make its own name resolve to 127.0.0.1, and read pages here as its own.
It cannot do so with an address, ``localhost`` or a name of this host: requests on the loopback for other names are
refused.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from typing import Final

#: bytes of /etc/hosts that are read
_MAX_SIZE: Final = 1 << 16


class HostNames:
    """The names of this host, and ``more``. With the latter, requests are checked on every address."""

    def __init__(self, more: Iterable[str] = (), hosts_file: str = "/etc/hosts") -> None:
        added = {_bare(name) for name in more}
        self._everywhere = bool(added)
        own = socket.gethostname().lower()
        self._names = {"localhost", own, own.partition(".")[0], *_loopback_names(hosts_file), *added}

    def accepts(self, host: str | None, local_address: str) -> bool:
        """Whether to serve a request with this ``Host`` on a connection to ``local_address``."""
        # Browsers always send a Host.
        if host is None or not (self._everywhere or _is_loopback(local_address)):
            return True
        name = _bare(host.strip())
        return name in self._names or name.endswith(".localhost") or _parse_address(name) is not None


def _bare(host: str) -> str:
    """Return a name without port, brackets and trailing dot."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not name.startswith("[")):
        name = host
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_loopback(text: str) -> bool:
    """Whether text is an address of the loopback, or one of IPv6 that stands for it."""
    address = _parse_address(text)
    return address is not None and (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _loopback_names(hosts_file: str) -> Iterator[str]:
    """Yield the loopback's names in /etc/hosts; often one is the host's full name."""
    try:
        with open(hosts_file, encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_SIZE).splitlines()
    except OSError:
        return
    for line in lines:
        address, *names = line.partition("#")[0].split() or [""]
        if _is_loopback(address):
            yield from map(_bare, names)
