"""Facts about the network of this host: sockets, interfaces, ways, rules.

Law: a segment's socket is tried out as the daemon opens it, by the daemon's own means, and closed again; nothing is
changed and nothing is sent.
"""

from __future__ import annotations

import fcntl
import json
import re
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bccnd.config import SegmentSettings
from bccnd.doctor import firewall, system
from bccnd.doctor.facts import Firewall, Holder, Interface, SegmentFacts
from bccnd.errors import StartError
from bccnd.net.udp import UdpOptions, grow_receive_buffer, open_udp

#: <linux/sockios.h>, struct ifreq and flags of <linux/if.h>
_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFADDR: Final = 0x8915
_SIOCGIFMTU: Final = 0x8921
_UP: Final = 0x1
_BROADCAST: Final = 0x2
_LOOPBACK: Final = 0x8
_RUNNING: Final = 0x40
_IFREQ: Final = struct.Struct("16s24s")
#: lines of `ss -m`: the size of a receive buffer, as the kernel counts it
_RECEIVE: Final = re.compile(r"\brb(\d+)")


def options_of(settings: SegmentSettings) -> UdpOptions:
    """The socket that a segment takes."""
    return UdpOptions(
        settings.label,
        settings.address,
        settings.port,
        bind=settings.bind,
        interface=settings.interface,
        hop_limit=settings.hop_limit,
    )


def look_at_segment(settings: SegmentSettings, daemon_pid: int) -> SegmentFacts:
    """All that can be found out about a segment of the configuration."""
    options = options_of(settings)
    way = _way(settings)
    name = settings.interface or (way[0] if way else None)
    # Before a socket of our own is open, which would be found among them.
    found = holders(settings.port)
    refused, grantable = None, None
    try:
        with open_udp(options) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer)
            grantable = grow_receive_buffer(sock, settings.receive_buffer)
    except StartError as error:
        refused = (error.reason, error.detail, error.remedy)
    except OSError as error:
        refused = ("no_route", f"segment {settings.label}: {error.strerror}", "see interface")
    return SegmentFacts(
        name=settings.label,
        address=settings.address,
        port=settings.port,
        interface=settings.interface,
        receive_buffer=settings.receive_buffer,
        refused=refused,
        way=way if refused is None else None,
        looks=None if name is None else look_at_interface(name),
        holders=found,
        grantable=grantable,
        granted=_granted(settings.port, daemon_pid, found or ()),
    )


# -- interfaces and ways


def look_at_interface(name: str) -> Interface:
    names = [found for _, found in socket.if_nameindex()]
    if name not in names:
        return Interface(name, there=False, others=tuple(names))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        flags = _asked(sock, _SIOCGIFFLAGS, name, "=H") or 0
        mtu = _asked(sock, _SIOCGIFMTU, name, "=i")
        addresses = _addresses(name) or _first_address(sock, name)
    return Interface(
        name,
        up=bool(flags & _UP),
        running=bool(flags & _RUNNING),
        broadcast=bool(flags & _BROADCAST),
        loopback=bool(flags & _LOOPBACK),
        mtu=mtu,
        addresses=addresses,
        rp_filter=_reverse_path(name),
        others=tuple(names),
    )


def _asked(sock: socket.socket, request: int, name: str, form: str) -> int | None:
    try:
        answer = fcntl.ioctl(sock, request, _IFREQ.pack(name.encode(), b""))
    except OSError:
        return None
    return int(struct.unpack_from(form, answer, 16)[0])


def _first_address(sock: socket.socket, name: str) -> tuple[str, ...]:
    try:
        answer = fcntl.ioctl(sock, _SIOCGIFADDR, _IFREQ.pack(name.encode(), b""))
    except OSError:
        return ()
    return (socket.inet_ntoa(answer[20:24]),)


def _addresses(name: str) -> tuple[str, ...]:
    """All IPv4 addresses, where `ip` is there to tell."""
    return tuple(
        f"{one['local']}/{one['prefixlen']}"
        for found in _json("ip", "-j", "-4", "address", "show", "dev", name)
        for one in found.get("addr_info", ())
        if "local" in one
    )


def _json(*words: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(system.ask(*words).text or "[]")
    except ValueError:
        return []
    return [one for one in found if isinstance(one, dict)]


def _reverse_path(name: str) -> int | None:
    """What is in force for an interface: the stricter of what stands for it and for all."""
    found = [system.number_in(f"/proc/sys/net/ipv4/conf/{one}/rp_filter") for one in ("all", name)]
    known = [one for one in found if one is not None]
    return max(known) if known else None


def _way(settings: SegmentSettings) -> tuple[str, str] | None:
    """Interface and source address of what is sent to a segment, as `ip` tells, or as far as the kernel does."""
    by = ["oif", settings.interface] if settings.interface else []
    for found in _json("ip", "-j", "route", "get", settings.address, *by):
        if "dev" in found:
            return str(found["dev"]), str(found.get("prefsrc", "no address"))
    return None


# -- who holds a port


def holders(port: int) -> tuple[Holder, ...] | None:
    """Who holds a UDP port in this network; None where the kernel does not tell."""
    found: dict[int, tuple[int, int]] = {}
    readable = False
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        text = system.content(table)
        if text is not None:
            readable = True
            found.update(read_sockets(text, port))
    if not readable:
        return None
    owners = _owners(found)
    return tuple(
        Holder(pid, system.program_of(pid) if pid else "", uid, drops, inode)
        for inode, (uid, drops) in found.items()
        for pid in owners.get(inode, [0])
    )


def read_sockets(text: str, port: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Inode, owner and drops of the sockets that are bound to a port, of what /proc/net/udp holds."""
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 13 or int(words[1].rpartition(":")[2], 16) != port:
            continue
        yield int(words[9]), (int(words[7]), int(words[12]))


def _owners(inodes: Iterable[int]) -> dict[int, list[int]]:
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[int, list[int]] = {}
    if wanted:
        for pid in system.pids():
            for link in set(system.links_of(pid)):
                if link in wanted:
                    owners.setdefault(wanted[link], []).append(pid)
    return owners


def _granted(port: int, daemon_pid: int, found: Sequence[Holder]) -> int | None:
    """What the kernel keeps for the daemon's socket; None where that cannot be told from others."""
    inodes = {one.inode for one in found if one.pid == daemon_pid}
    if not daemon_pid or not inodes:
        return None
    said = system.ask("ss", "-H", "-u", "-a", "-n", "-m", "-e", "-O", f"sport = :{port}").text
    for line in said.splitlines():
        size = _RECEIVE.search(line)
        # The kernel counts its own overhead too, and reports twice what it grants.
        if size and any(re.search(rf"\bino:{inode}\b", line) for inode in inodes):
            return int(size[1]) // 2
    return None


# -- the firewall


def look_at_firewall(segments: Sequence[SegmentFacts]) -> Firewall:
    """Whether the rules of this host keep out what comes on these segments."""
    arriving = [firewall.arriving_on(one) for one in segments]
    nft = system.ask("nft", "-j", "list", "ruleset")
    listed = "" if nft.trouble else nft.text
    # Tables of the older kind nft does not list.
    older = bool((system.content("/proc/net/ip_tables_names") or "").strip())
    saved: dict[str, str] = {}
    trouble = ""
    try:
        if not listed or older or firewall.made_by_iptables(listed, arriving):
            for program in {firewall.PROGRAMS[one.destination.version] for one in arriving}:
                said = system.ask(f"{program}-save")
                trouble = trouble or said.trouble
                saved[program] = "" if said.trouble else said.text
                if older:
                    saved[f"{program}-legacy"] = system.ask(f"{program}-legacy-save").text
        drops = firewall.find_filters(listed, saved, arriving)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return Firewall(f"the rules are not understood ({error!r})", "please report it, with: nft -j list ruleset")
    if not trouble:
        return Firewall(drops=drops)
    if not trouble.startswith("there is no"):
        return Firewall(f"the rules cannot be read: {trouble}", "run this as root", drops)
    if listed:
        return Firewall(
            "some rules were made by iptables, and there is no iptables-save", "apt install iptables", drops
        )
    if nft.trouble.startswith("there is no"):
        return Firewall("there is neither nft nor iptables-save here to ask for rules", "apt install nftables", drops)
    return Firewall(f"the rules cannot be read: {nft.trouble}", "run this as root", drops)
