"""Parses network addresses: IP addresses, hosts, ``host:port``, and URLs of links.

Invariant: the lookup of a host that is accepted here raises nothing but OSError.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from bccnd.core.formats.bus_address import MAX_PATH, SUN_PATH, is_descriptor_path
from bccnd.errors import BadAddress

#: a name that the kernel takes for an interface
INTERFACE: Final = re.compile(r"[!-.0-~]{1,15}")
_LABEL: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_MAX_NAME: Final = 253
_PORT: Final = re.compile(r"[0-9]{1,5}")
_URL: Final = re.compile(r"(tcp|tls\+tcp|ipc|abstract)://(.+)")


class LinkUrl(NamedTuple):
    """A parsed URL of a link: ``host`` and ``port`` for TCP, else the ``path`` of a Unix socket. At an empty host, a
    listener uses all addresses."""

    tls: bool = False
    host: str = ""
    port: int = 0
    path: str = ""


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an IP address, in IPv6 with or without its interface. Raises BadAddress: no_address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        address = None
    scope = getattr(address, "scope_id", None)
    if address is None or not (scope is None or INTERFACE.fullmatch(scope)):
        raise BadAddress("no_address", f"{text[:60]!r} is not an address")
    return address


def parse_ip_port(text: str) -> tuple[str, int]:
    """Parse ``address:port`` or ``[address]:port``. Raises BadAddress: no_address, no_port, no_interface."""
    host, port = _split_port(text, text)
    _check_interface(parse_ip(host))
    return host, port


def check_host(text: str) -> None:
    """Check the name or the address of a host. Raises BadAddress: no_host, no_interface."""
    try:
        address = parse_ip(text)
    except BadAddress:
        if not _is_host_name(text):
            raise BadAddress("no_host", f"{text[:60]!r} is neither the name nor the address of a host") from None
        return
    _check_interface(address)


def parse_link_url(text: str, *, dials: bool = False) -> LinkUrl:
    """Parse the URL of a link, which ``dials`` or listens. Raises BadAddress: no_url, no_address, no_port, no_host,
    no_interface, too_long."""
    found = _URL.fullmatch(text)
    if found is None:
        raise BadAddress("no_url", f"{text[:60]!r} is not the URL of a link")
    scheme, rest = found.groups()
    if scheme in ("ipc", "abstract"):
        if scheme == "ipc" and is_descriptor_path(rest):
            raise BadAddress("no_address", f"{text[:60]!r} is a descriptor, where no other process can connect")
        most = MAX_PATH if scheme == "ipc" else SUN_PATH - 1
        if len(rest.encode("utf-8", "surrogatepass")) > most:
            raise BadAddress("too_long", f"{text[:60]!r}... has more than {most} bytes behind {scheme}://")
        return LinkUrl(path=rest if scheme == "ipc" else f"\0{rest}")
    host, port = _split_port(rest, text)
    everywhere = host in ("", "*")
    if dials and (everywhere or not port):
        raise BadAddress("no_host", f"{text!r} names no {'host' if everywhere else 'port'} to dial")
    if not everywhere:
        check_host(host)
    return LinkUrl(scheme == "tls+tcp", "" if everywhere else host, port)


def write_host_port(host: str, port: int) -> str:
    """Write ``host:port``, or ``[host]:port`` for IPv6; IPv4 addresses in IPv6 as IPv4."""
    if host.startswith("::ffff:") and "." in host:
        host = host.removeprefix("::ffff:")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split_port(text: str, whole: str) -> tuple[str, int]:
    """Split ``host:port``; errors show ``whole``."""
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65_535:
        raise BadAddress("no_port", f"{whole[:60]!r} has no port")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed != (":" in host):  # only addresses in IPv6 are in brackets
        raise BadAddress("no_address", f"{whole[:60]!r} must have an IPv6 address in brackets, and nothing else")
    return (host[1:-1] if bracketed else host), int(port)


def _check_interface(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if address.version == 6 and address.is_link_local and not address.scope_id:
        raise BadAddress("no_interface", f"{address} is a different host on each interface")


def _is_host_name(text: str) -> bool:
    try:
        name = text if text.isascii() else text.encode("idna").decode("ascii")
    except UnicodeError:
        return False
    labels = name.removesuffix(".").split(".")
    # With digits only in its last part it is meant as an address.
    return len(name) <= _MAX_NAME and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
