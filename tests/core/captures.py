"""Builds captures byte by byte from the descriptions of their formats, independent of the reader."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

MICRO: Final = 0xA1B2C3D4
NANO: Final = 0xA1B23C4D
#: records with an interface, a protocol and a kind of packet behind the usual header
MODIFIED: Final = 0xA1B2CD34


class Frame(NamedTuple):
    """A packet of a capture. ``stamp`` is in nanoseconds; ``length`` is its length on the wire, if it was cut."""

    stamp: int
    data: bytes
    length: int | None = None

    @property
    def wire(self) -> int:
        return len(self.data) if self.length is None else self.length


def udp(payload: bytes, sender: int = 4000, port: int = 5400, *, size: int | None = None) -> bytes:
    return struct.pack(">HHHH", sender, port, 8 + len(payload) if size is None else size, 0) + payload


def ipv4(
    inside: bytes,
    source: str = "10.0.0.1",
    *,
    proto: int = 17,
    options: bytes = b"",
    fragment: int = 0,
    total: int = -1,
) -> bytes:
    assert len(options) % 4 == 0
    size = 20 + len(options) + len(inside) if total < 0 else total
    head = struct.pack(
        ">BBHHHBBH4s4s",
        *(0x40 | 5 + len(options) // 4, 0, size, 7, fragment, 64, proto, 0),
        *(ipaddress.ip_address(source).packed, b"\xff" * 4),
    )
    return head + options + inside


def ipv6(
    inside: bytes, source: str = "fe80::1", *, extensions: Sequence[tuple[int, bytes]] = (), proto: int = 17
) -> bytes:
    """``extensions`` are headers by their numbers, without their first byte."""
    kinds = [kind for kind, _ in extensions] + [proto]
    chain = b"".join(bytes([after]) + rest for (_, rest), after in zip(extensions, kinds[1:], strict=True))
    address = ipaddress.ip_address(source).packed
    return struct.pack(">IHBB16s16s", 6 << 28, len(chain + inside), kinds[0], 1, address, b"\xff" * 16) + chain + inside


def ether(inside: bytes, kind: int | None = None, *, tags: Sequence[int] = (), padding: bytes = b"") -> bytes:
    of = kind if kind is not None else 0x86DD if inside[0] >> 4 == 6 else 0x0800
    marks = b"".join(struct.pack(">HH", tag, 5) for tag in tags)
    return b"\xff" * 6 + b"\x02" * 6 + marks + struct.pack(">H", of) + inside + padding


def sll(inside: bytes, *, tags: Sequence[int] = ()) -> bytes:
    kinds = [*tags, 0x86DD if inside[0] >> 4 == 6 else 0x0800]
    tail = b"".join(struct.pack(">HH", 5, kind) for kind in kinds[1:])
    return struct.pack(">HHH8sH", 1, 1, 6, b"\x02" * 6, kinds[0]) + tail + inside


def sll2(inside: bytes, *, tags: Sequence[int] = ()) -> bytes:
    kinds = [*tags, 0x86DD if inside[0] >> 4 == 6 else 0x0800]
    tail = b"".join(struct.pack(">HH", 5, kind) for kind in kinds[1:])
    return struct.pack(">HHIHBB8s", kinds[0], 0, 3, 1, 1, 6, b"\x02" * 6) + tail + inside


def null(inside: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}I", 30 if inside[0] >> 4 == 6 else 2) + inside


def pcap(frames: Iterable[Frame], *, order: str = "<", magic: int = MICRO, link: int = 1) -> bytes:
    unit = 1 if magic == NANO else 1000
    found = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 262_144, link)
    for one in frames:
        found += struct.pack(f"{order}IIII", one.stamp // 10**9, one.stamp % 10**9 // unit, len(one.data), one.wire)
        found += struct.pack(f"{order}IHBx", 2, 0x0800, 0) if magic == MODIFIED else b""
        found += one.data
    return found


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    padded = body + b"\0" * (-len(body) % 4)
    size = struct.pack(f"{order}I", 12 + len(padded))
    return struct.pack(f"{order}I", kind) + size + padded + size


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link: int = 1, order: str = "<", *, resolution: int | None = None, offset: int | None = None) -> bytes:
    body = struct.pack(f"{order}HHI", link, 0, 0) + option(2, b"eth0", order)
    if resolution is not None:
        body += option(9, bytes([resolution]), order)
    if offset is not None:
        body += option(14, struct.pack(f"{order}q", offset), order)
    return block(1, body + option(0, b"", order), order)


def enhanced(frame: Frame, number: int = 0, order: str = "<", *, per_second: int = 10**6) -> bytes:
    units = frame.stamp * per_second // 10**9
    head = struct.pack(f"{order}IIIII", number, units >> 32, units & 0xFFFFFFFF, len(frame.data), frame.wire)
    return block(6, head + frame.data + b"\0" * (-len(frame.data) % 4) + option(1, b"a comment", order), order)


def statistics(drops: int, number: int = 0, order: str = "<") -> bytes:
    body = struct.pack(f"{order}III", number, 0, 0) + option(5, struct.pack(f"{order}Q", drops), order)
    return block(5, body + option(0, b"", order), order)


def pcapng(frames: Iterable[Frame], *, order: str = "<", link: int = 1) -> bytes:
    return section(order) + interface(link, order) + b"".join(enhanced(one, order=order) for one in frames)
