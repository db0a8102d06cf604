"""Reads UDP datagrams from packet captures (pcap and pcapng, as tcpdump and Wireshark write them).

A packet is a whole UDP datagram for the given port or is counted in `CaptureCounts`. A damaged file raises
JournalError; one that ends within a packet is only counted. Memory is bounded by the longest block. Source:
draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, the list of link types of tcpdump.org.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from bccnd.errors import JournalError

#: most bytes of a packet (tcpdump's largest snapshot length)
MAX_PACKET: Final = 262_144
#: most bytes of a pcapng block; larger ones are damage
MAX_BLOCK: Final = 16 << 20
#: most interfaces of one section
MAX_INTERFACES: Final = 65_536
#: nanoseconds since 1970 at the end of the year 9999
MAX_STAMP: Final = 253_402_300_800 * 10**9
#: most nested VLAN tags
_MAX_TAGS: Final = 8

_GZIP: Final = b"\x1f\x8b"
_SECTION: Final = b"\x0a\x0d\x0d\x0a"
#: first bytes of a pcap file -> byte order, nanoseconds in the unit of its stamps, bytes before a packet: in
#: "modified" captures there are an interface, a protocol and a kind of packet behind the usual header
_PCAP: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
#: blocks of pcapng
_INTERFACE: Final = 1
_OLD_PACKET: Final = 2
_SIMPLE_PACKET: Final = 3
_STATISTICS: Final = 5
_PACKET: Final = 6
_SECTION_TYPE: Final = 0x0A0D0D0A
#: options of pcapng
_TSRESOL: Final = 9
_TSOFFSET: Final = 14
_IFDROP: Final = 5

#: link types
NULL: Final = 0
ETHERNET: Final = 1
RAW: Final = 101
LOOP: Final = 108
LINUX_SLL: Final = 113
IPV4: Final = 228
IPV6: Final = 229
LINUX_SLL2: Final = 276
#: link types of raw IP on various systems
_ALSO_RAW: Final = (12, 14, RAW, IPV4, IPV6)

_ETHER_IPV4: Final = 0x0800
_ETHER_IPV6: Final = 0x86DD
_TAGS: Final = (0x8100, 0x88A8, 0x9100)
_UDP: Final = 17
#: extension headers between IPv6 and UDP: hop by hop, routing, destination options; authentication has its own unit of
#: length
_EXTENSIONS: Final = (0, 43, 60)
_AUTHENTICATION: Final = 51
_FRAGMENT: Final = 44
_U16: Final = struct.Struct(">H")
_PORTS: Final = struct.Struct(">HHH")


class Packet(NamedTuple):
    """A captured packet: ``data`` may be shorter than its ``length``. ``stamp`` is in nanoseconds since 1970."""

    stamp: int
    link: int
    data: bytes
    length: int


class Datagram(NamedTuple):
    """A whole UDP datagram: ``peer`` is its sender, as ``address:port``."""

    stamp: int
    peer: str
    payload: bytes


@dataclass
class CaptureCounts:
    """Counts of captured packets: each of ``packets`` is in one of the six that follow."""

    packets: int = 0
    #: whole UDP datagrams to the port
    datagrams: int = 0
    #: other traffic, and packets of unknown link types
    other: int = 0
    unknown_link: int = 0
    #: fragmented UDP, which is not reassembled
    fragments: int = 0
    #: to the port, but cut off by the snapshot length
    truncated: int = 0
    #: contradictory headers, or no timestamp
    malformed: int = 0
    #: files that end in the middle of a packet
    cut_short: int = 0
    #: packets that the capturing host reports as dropped
    dropped: int = 0
    links: set[int] = field(default_factory=set)


def bad_capture(detail: str) -> JournalError:
    return JournalError("bad_capture", detail, "capture with tcpdump -w FILE (pcap) or as pcapng, uncompressed")


class Reader:
    """Reads a capture piece by piece; ``name`` is for messages."""

    def __init__(self, name: str, tally: CaptureCounts) -> None:
        self._name = name
        self._tally = tally
        self._rest = b""
        self._read = 0
        self._take: Callable[[bytes, int], tuple[Packet | None, int]] | None = None
        self._order = "<"
        self._unit = 1
        self._link = 0
        #: of this section: link type, units of time per second and seconds to add
        self._interfaces: list[tuple[int, int, int]] = []
        #: packets dropped, by interface
        self._drops: dict[int, int] = {}

    def feed(self, piece: bytes) -> Iterator[Packet]:
        """Iterate over the packets that are complete now. Raises JournalError: bad_capture."""
        data, at = self._rest + piece if self._rest else piece, 0
        if self._take is None:
            at = self._begin(data)
        while self._take is not None:
            packet, size = self._take(data, at)
            if not size:
                break
            at += size
            self._read += size
            if packet is not None and 0 <= packet.stamp < MAX_STAMP:
                yield packet
            elif packet is not None:
                self._count_timeless()
        self._rest = data[at:] if at else data

    def finish(self) -> None:
        """End the capture. Raises JournalError: bad_capture, if it has no header."""
        if self._take is None:
            if not self._rest:
                raise bad_capture(f"{self._name} is empty")
            raise self._foreign()
        if self._rest:
            self._tally.cut_short += 1
        self._end_section()

    def _foreign(self) -> JournalError:
        return bad_capture(f"{self._name} is not a packet capture")

    def _damaged(self, what: str) -> JournalError:
        return bad_capture(f"{self._name} is damaged at byte {self._read}: {what}")

    def _begin(self, data: bytes) -> int:
        """Detect the file format; return the size of the header, 0 if it is incomplete."""
        if data[:2] == _GZIP:
            raise JournalError("bad_capture", f"{self._name} is compressed", f"gunzip {self._name}")
        if len(data) < 4:
            return 0
        if data[:4] == _SECTION:
            self._take = self._take_block
            return 0
        if data[:4] not in _PCAP:
            raise self._foreign()
        if len(data) < 24:
            return 0
        self._order, self._unit, self._before = _PCAP[data[:4]]
        major, link = struct.unpack(f"{self._order}4xH14xI", data[:24])
        if major != 2:
            raise bad_capture(f"{self._name} is a capture of version {major}, only version 2 is supported")
        # the upper bits are about frame check sums
        self._link = link & 0xFFFF
        self._head = struct.Struct(f"{self._order}IIII")
        self._take = self._take_record
        self._read = 24
        return 24

    # -- pcap

    def _take_record(self, data: bytes, at: int) -> tuple[Packet | None, int]:
        """Return the packet at a position and its size; 0 if it is incomplete."""
        begin = at + self._before
        if len(data) < begin:
            return None, 0
        seconds, fraction, size, length = self._head.unpack_from(data, at)
        if size > MAX_PACKET:
            raise self._damaged(f"a packet of {size} bytes")
        end = begin + size
        if end > len(data):
            return None, 0
        stamp = seconds * 10**9 + fraction * self._unit
        return Packet(stamp, self._link, data[begin:end], length), end - at

    # -- pcapng

    def _take_block(self, data: bytes, at: int) -> tuple[Packet | None, int]:
        """Return the packet, if it is one, and size of the block at a position; 0 if it is incomplete."""
        if len(data) - at < 12:
            return None, 0
        if data[at : at + 4] == _SECTION:
            self._begin_section(data[at + 8 : at + 12])
        kind, size = struct.unpack_from(f"{self._order}II", data, at)
        if size % 4 or size < 12 or size > MAX_BLOCK:
            raise self._damaged(f"a block of {size} bytes")
        if len(data) - at < size:
            return None, 0
        body = data[at + 8 : at + size - 4]
        if data[at + 4 : at + 8] != data[at + size - 4 : at + size]:
            raise self._damaged("the two lengths of a block differ")
        try:
            return self._read_block(kind, body), size
        except struct.error:
            raise self._damaged(f"a block of type {kind} that is too short") from None

    def _begin_section(self, order: bytes) -> None:
        """Begin a section; repeated calls for an incomplete block do no harm."""
        if order not in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d"):
            raise self._damaged("a section without a byte order")
        self._end_section()
        self._order = "<" if order[0] == 0x4D else ">"

    def _end_section(self) -> None:
        self._tally.dropped += sum(self._drops.values())
        self._interfaces, self._drops = [], {}

    def _read_block(self, kind: int, body: bytes) -> Packet | None:
        order = self._order
        if kind == _PACKET:
            interface, high, low, size, length = struct.unpack_from(f"{order}IIIII", body)
        elif kind == _OLD_PACKET:
            interface, _, high, low, size, length = struct.unpack_from(f"{order}HHIIII", body)
        elif kind == _SIMPLE_PACKET:
            self._count_timeless()
            return None
        else:
            self._read_other(kind, body)
            return None
        if interface >= len(self._interfaces):
            raise self._damaged(f"a packet of interface {interface}, which is not described")
        if size > len(body) - 20:
            raise self._damaged(f"a packet of {size} bytes in a block of {len(body)}")
        link, per_second, offset = self._interfaces[interface]
        stamp = (high << 32 | low) * 10**9 // per_second + offset * 10**9
        return Packet(stamp, link, body[20 : 20 + size], length)

    def _count_timeless(self) -> None:
        """Count a packet without a timestamp."""
        self._tally.packets += 1
        self._tally.malformed += 1

    def _read_other(self, kind: int, body: bytes) -> None:
        order = self._order
        if kind == _SECTION_TYPE:
            (major,) = struct.unpack_from(f"{order}4xH", body)
            if major != 1:
                raise bad_capture(f"{self._name} is a capture of version {major}, only version 1 is supported")
        elif kind == _INTERFACE:
            if len(self._interfaces) >= MAX_INTERFACES:
                raise self._damaged(f"more than {MAX_INTERFACES} interfaces")
            (link,) = struct.unpack_from(f"{order}H2x4x", body)
            per_second, offset = 10**6, 0
            for code, value in self._options(body[8:]):
                if code == _TSRESOL and value:
                    per_second = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
                elif code == _TSOFFSET and len(value) == 8:
                    (offset,) = struct.unpack(f"{order}q", value)
            self._interfaces.append((link, per_second, offset))
        elif kind == _STATISTICS:
            (interface,) = struct.unpack_from(f"{order}I8x", body)
            for code, value in self._options(body[12:]):
                if code == _IFDROP and len(value) == 8 and interface < len(self._interfaces):
                    (self._drops[interface],) = struct.unpack(f"{order}Q", value)

    def _options(self, body: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        while at + 4 <= len(body):
            code, size = struct.unpack_from(f"{self._order}HH", body, at)
            if code == 0:
                return
            yield code, body[at + 4 : at + 4 + size]
            at += 4 + (size + 3 & ~3)


# -- contents of packets


def unwrap(packet: Packet, port: int, tally: CaptureCounts) -> Datagram | None:
    """Return the datagram for ``port`` in a packet, or None, and count which it was."""
    tally.packets += 1
    found = _from_link(packet, port)
    if isinstance(found, str):
        setattr(tally, found, getattr(tally, found) + 1)
        if found == "unknown_link" and len(tally.links) < 8:
            tally.links.add(packet.link)
        return None
    tally.datagrams += 1
    return Datagram(packet.stamp, *found)


#: the sender and the payload of a datagram, or the name of a counter
_Found = tuple[str, bytes] | str


def _from_link(packet: Packet, port: int) -> _Found:
    link, data = packet.link, packet.data
    if link == ETHERNET:
        return _from_ether(data, 12, packet.length, port)
    if link in _ALSO_RAW:
        return _from_ip(data, 0, packet.length, port)
    if link in (NULL, LOOP):
        # behind 4 bytes for the family, in unknown byte order; IP has its own version
        return _from_ip(data, 4, packet.length, port)
    if link == LINUX_SLL:
        return _from_ether(data, 14, packet.length, port)
    if link == LINUX_SLL2:
        return _from_ether(data, 0, packet.length, port, skip=20)
    return "unknown_link"


def _from_ether(data: bytes, at: int, length: int, port: int, skip: int = 0) -> _Found:
    """Parse by the ether type at ``at``, skipping VLAN tags; contents begin ``skip`` bytes into the packet, or right
    behind the type."""
    begin = skip or at + 2
    for _ in range(_MAX_TAGS + 1):
        if len(data) < at + 2:
            return "other"
        (kind,) = _U16.unpack_from(data, at)
        if kind in (_ETHER_IPV4, _ETHER_IPV6):
            return _from_ip(data, begin, length, port)
        if kind not in _TAGS:
            return "other"
        at, begin = begin + 2, begin + 4
    return "other"


def _from_ip(data: bytes, at: int, length: int, port: int) -> _Found:
    version = data[at] >> 4 if len(data) > at else 0
    if version == 4:
        return _from_ipv4(data, at, length, port)
    return _from_ipv6(data, at, length, port) if version == 6 else "other"


def _from_ipv4(data: bytes, at: int, length: int, port: int) -> _Found:
    if len(data) < at + 20:
        return "other"
    head = (data[at] & 0x0F) * 4
    if data[at + 9] != _UDP:
        return "other"
    total, _, fragment = _PORTS.unpack_from(data, at + 2)
    if fragment & 0x3FFF:
        return "fragments"
    if head < 20 or total < head + 8 or at + total > length:
        return "malformed"
    return _from_udp(data, at + head, at + total, port, data[at + 12 : at + 16])


def _from_ipv6(data: bytes, at: int, length: int, port: int) -> _Found:
    if len(data) < at + 40:
        return "other"
    (size,) = _U16.unpack_from(data, at + 4)
    end = at + 40 + size
    kind, begin = data[at + 6], at + 40
    while kind != _UDP:
        if kind not in (*_EXTENSIONS, _AUTHENTICATION, _FRAGMENT) or begin + 8 > min(end, len(data)):
            return "other"
        if kind == _FRAGMENT:
            if _U16.unpack_from(data, begin + 2)[0] & 0xFFF9:
                return "fragments" if data[begin] == _UDP else "other"
            step = 8
        else:
            step = (data[begin + 1] + 2) * 4 if kind == _AUTHENTICATION else (data[begin + 1] + 1) * 8
        kind, begin = data[begin], begin + step
    if end > length or begin + 8 > end:
        return "malformed"
    return _from_udp(data, begin, end, port, data[at + 8 : at + 24])


def _from_udp(data: bytes, at: int, end: int, port: int, source: bytes) -> _Found:
    """Parse the datagram at a position; by IP it ends at ``end``."""
    if len(data) < at + 6:
        return "other"  # the port is missing
    sender, receiver, size = _PORTS.unpack_from(data, at)
    if receiver != port:
        return "other"
    if size < 8 or at + size > end:
        return "malformed"
    if at + size > len(data):
        return "truncated"
    return _peer(source, sender), data[at + 8 : at + size]


@lru_cache(4096)
def _peer(address: bytes, port: int) -> str:
    text = str(ipaddress.ip_address(address))
    return f"[{text}]:{port}" if len(address) == 16 else f"{text}:{port}"
