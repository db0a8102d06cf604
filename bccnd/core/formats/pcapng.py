"""Builds captures in pcapng: datagrams with IP and UDP headers made from their addresses, and a comment on each.

Source: draft-ietf-opsawg-pcapng; RFC 791, 8200 and 768 for the headers.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from bccnd.core.formats.pcap import RAW

_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_PACKET: Final = 6
#: options: a comment on the block, the application that wrote the section, the name and the time unit of an interface
_COMMENT: Final = 1
_APPLICATION: Final = 4
_NAME: Final = 2
_TIME_UNIT: Final = 9
_NANOSECONDS: Final = b"\x09"
_UDP: Final = 17
_LARGEST: Final = 0xFFFF

Address = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


def begin_section(application: str) -> bytes:
    """Return the block that begins a capture."""
    head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    return _block(_SECTION, head + _options({_APPLICATION: application.encode()}))


def describe_interface(name: str) -> bytes:
    """Return the block of an interface; interfaces are numbered from 0 in the order of their blocks."""
    options = {_NAME: name.encode(), _TIME_UNIT: _NANOSECONDS}
    return _block(_INTERFACE, struct.pack("<HHI", RAW, 0, 0) + _options(options))


def packet(interface: int, stamp_ns: int, data: bytes, comment: str) -> bytes:
    """Return the block of a packet that begins with its IP header; ``stamp_ns`` counts from 1970."""
    head = struct.pack("<IIIII", interface, stamp_ns >> 32, stamp_ns & 0xFFFFFFFF, len(data), len(data))
    return _block(_PACKET, head + _padded(data) + _options({_COMMENT: comment.encode()} if comment else {}))


def _options(values: dict[int, bytes]) -> bytes:
    return b"".join(struct.pack("<HH", code, len(value)) + _padded(value) for code, value in values.items()) + bytes(4)


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def read_address(text: str) -> Address | None:
    """Read ``address:port``, ``[address]:port`` or ``address#port``; None if it is none."""
    host, _, port = text.replace("#", ":").rpartition(":")
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]), int(port) & 0xFFFF
    except ValueError:
        return None


def udp_packet(peer: str, segment: str, payload: bytes) -> bytes:
    """Return a datagram with IP and UDP headers, from its sender to the address of its segment. An unknown address, as
    on links, is all zeros."""
    sender, receiver = read_address(peer), read_address(segment)
    version = sender[0].version if sender else receiver[0].version if receiver else 4
    zero: Address = (ipaddress.IPv6Address(0) if version == 6 else ipaddress.IPv4Address(0), 0)
    source, from_port = sender or zero
    target, to_port = receiver if receiver and receiver[0].version == version else zero
    length = min(8 + len(payload), _LARGEST)
    ports = struct.pack(">HHH", from_port, to_port, length)
    addresses = source.packed + target.packed
    if version == 6:
        sum_ = _checksum(addresses + struct.pack(">II", length, _UDP) + ports + payload)
        head = struct.pack(">IHBB", 6 << 28, length, _UDP, 64) + addresses
        return head + ports + sum_ + payload
    head = struct.pack(">BBHIBB", 0x45, 0, min(20 + length, _LARGEST), 0, 64, _UDP)
    # Over IPv4 a datagram may be without a sum of its own: 0.
    return head + _checksum(head + addresses) + addresses + ports + bytes(2) + payload


def _checksum(data: bytes) -> bytes:
    """Return the Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) & ~1])) + (data[-1] << 8 if len(data) % 2 else 0)
    while total > _LARGEST:
        total = (total & _LARGEST) + (total >> 16)
    return struct.pack(">H", ~total & _LARGEST)
