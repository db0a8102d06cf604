"""The names by which a listener of ours may be asked for pages.

A page of a stranger in a browser on this host can have its own name resolve to this host, and then read here what it
likes as if it were its own (DNS rebinding). It cannot do so with an address, with ``localhost`` or with a name that
this host has itself: requests for any other are refused where they come in by the loopback.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from typing import Any, Final

#: bytes of /etc/hosts that are read
_MOST: Final = 1 << 16


class HostNames:
    """``more`` are names beside those of this host; with any of them requests are checked wherever they come in."""

    def __init__(self, more: Iterable[str] = (), hosts_file: str = "/etc/hosts") -> None:
        added = {_bare(name) for name in more}
        self._everywhere = bool(added)
        own = socket.gethostname().lower()
        self._names = {"localhost", own, own.partition(".")[0], *_loopback_names(hosts_file), *added}

    def admits(self, host: str | None, arrived: Any) -> bool:
        """Whether to answer a request with this ``Host``, on a connection to this address of ours."""
        # Browsers always name a host; what does not is none.
        if host is None or not (self._everywhere or _is_loopback(arrived)):
            return True
        name = _bare(host.strip())
        return name in self._names or name.endswith(".localhost") or _is_address(name)


def _bare(host: str) -> str:
    """A name without its port, its brackets and the root's dot."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not name.startswith("[")):
        name = host
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(arrived: Any) -> bool:
    if not isinstance(arrived, tuple):  # a socket in the file system, which no browser opens
        return False
    address = ipaddress.ip_address(str(arrived[0]).partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _loopback_names(hosts_file: str) -> Iterator[str]:
    """What the administrator of this host calls its loopback, among it often the full name of the host."""
    try:
        with open(hosts_file, encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST).splitlines()
    except OSError:
        return
    for line in lines:
        address, *names = line.partition("#")[0].split() or [""]
        if _is_address(address) and ipaddress.ip_address(address).is_loopback:
            yield from map(_bare, names)
