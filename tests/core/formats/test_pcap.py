"""Packet captures, read from their bytes: every format, every encapsulation of a datagram, and damage."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.pcap import (
    _MAX_TAGS,
    MAX_BLOCK,
    MAX_INTERFACES,
    MAX_PACKET,
    MAX_STAMP,
    CaptureCounts,
    Datagram,
    Packet,
    Reader,
    unwrap,
)
from bccnd.errors import JournalError
from tests.core import captures
from tests.core.captures import (
    MICRO,
    MODIFIED,
    NANO,
    Frame,
    block,
    ether,
    ipv4,
    ipv6,
    null,
    option,
    pcap,
    pcapng,
    sll,
    sll2,
    udp,
)
from tests.core.material import reason_of

PORT = 5400
T = 1_700_000_000_123_456_000
BODY = b"BCCN1[9]a:1:c|xyz"


def read(data: bytes, piece: int = 0) -> tuple[list[Packet], CaptureCounts]:
    tally = CaptureCounts()
    reader = Reader("x.pcap", tally)
    found: list[Packet] = []
    for at in range(0, len(data), piece or max(1, len(data))):
        found += reader.feed(data[at : at + (piece or len(data))])
    reader.finish()
    return found, tally


def datagrams(data: bytes, piece: int = 0) -> tuple[list[Datagram], CaptureCounts]:
    packets, tally = read(data, piece)
    return [one for one in (unwrap(packet, PORT, tally) for packet in packets) if one is not None], tally


def counts(tally: CaptureCounts) -> dict[str, int]:
    return {name: value for name, value in dataclasses.asdict(tally).items() if value and name != "links"}


def refused(data: bytes) -> str:
    with pytest.raises(JournalError) as caught:
        datagrams(data)
    assert caught.value.reason == "bad_capture"
    assert caught.value.remedy
    assert "x.pcap" in caught.value.detail
    assert "\n" not in caught.value.detail
    return caught.value.detail


# -- formats


def frames(count: int = 3) -> list[Frame]:
    return [Frame(T + number * 1_000_000, ether(ipv4(udp(b"%d" % number)))) for number in range(count)]


def wanted(count: int = 3) -> list[Datagram]:
    return [Datagram(T + number * 1_000_000, "10.0.0.1:4000", b"%d" % number) for number in range(count)]


def one_by_one(*found: bytes) -> bytes:
    return captures.section() + b"".join(found)


FILES: dict[str, bytes] = {
    **{
        f"pcap {order} {unit:x}": pcap(frames(), order=order, magic=unit)
        for order in "<>"
        for unit in (MICRO, NANO, MODIFIED)
    },
    **{f"pcapng {order}": pcapng(frames(), order=order) for order in "<>"},
    "sections of both orders": pcapng(frames()[:1]) + pcapng(frames()[1:], order=">"),
    "interfaces of two kinds": one_by_one(
        captures.interface(101, resolution=9),
        captures.enhanced(Frame(T, ipv4(udp(b"0"))), per_second=10**9),
        captures.interface(1, resolution=0x80 | 20),
        captures.enhanced(frames()[1], 1, per_second=2**20),
        captures.interface(1, offset=1_000_000_000),
        captures.enhanced(Frame(T + 2_000_000 - 10**18, frames()[2].data), 2),
    ),
    "blocks without contents": one_by_one(
        *(
            block(99, b"abc"),
            captures.interface(),
            captures.enhanced(frames()[0]),
            block(4, b"\0" * 8),
            captures.statistics(0),
        ),
        *map(captures.enhanced, frames()[1:]),
    ),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("piece", [0, 1, 7, 64])
def test_every_format_is_read_in_pieces_of_any_size(name: str, piece: int) -> None:
    found, tally = datagrams(FILES[name], piece)
    exact = wanted()
    if name == "interfaces of two kinds":  # a unit of 2**-20 seconds is not a millisecond's part
        assert abs(found[1].stamp - exact[1].stamp) < 1000
        found[1] = found[1]._replace(stamp=exact[1].stamp)
    assert found == exact
    assert counts(tally) == {"packets": 3, "datagrams": 3}


def test_bounds_of_packets_and_blocks_are_read() -> None:
    late = Frame(T + 789, frames()[0].data)
    assert [datagrams(pcap([late], magic=unit))[0][0].stamp - T for unit in (NANO, MICRO)] == [789, 0]
    largest = Frame(0, b"\0" * MAX_PACKET)
    for data in (pcap([largest]), pcapng([largest]) + block(99, b"")):
        found, tally = read(data)
        assert [(one.stamp, len(one.data)) for one in found] == [(0, MAX_PACKET)]
        assert counts(tally) == {}
    with pytest.raises(JournalError, match="is not a packet capture"):
        next(Reader("x.pcap", CaptureCounts()).feed(b"BCCN"), None)


def test_options_count_up_to_the_end_and_by_their_length() -> None:
    fine, other = option(9, b"\x09"), struct.pack("<q", 1000)
    interface = struct.pack("<HHI", 1, 0, 0) + option(1, b"") + option(3, other) + fine
    for rest in (b"", b"\0" * 3, option(0, b""), option(0, b"") + option(14, other)):
        data = block(1, interface + rest)
        assert read(captures.section() + data)[0] == []
    packet = struct.pack("<IIIII", 0, T >> 32, T & 0xFFFFFFFF, 4, 4) + b"data"
    found, _ = read(captures.section() + data + block(6, packet))
    assert found == [Packet(T, 1, b"data", 4)]
    head = struct.pack("<IIIII", 0, 0, 0, 5, 5)
    assert "a packet of 5 bytes" in refused(captures.section() + data + block(6, head + b"data"))


def test_packet_blocks_of_other_kinds() -> None:
    one = frames()[0]
    units = one.stamp // 1000
    head = struct.pack("<HHIIII", 0, 5, units >> 32, units & 0xFFFFFFFF, len(one.data), one.wire)
    assert datagrams(one_by_one(captures.interface(), block(2, head + one.data)))[0] == wanted(1)
    # A packet without a time, or with an impossible one, is counted.
    simple = block(3, struct.pack("<I", one.wire) + one.data)
    late = Frame(MAX_STAMP, one.data)
    found, tally = datagrams(one_by_one(captures.interface(), simple, captures.enhanced(one), captures.enhanced(late)))
    assert found == wanted(1)
    assert counts(tally) == {"packets": 3, "datagrams": 1, "malformed": 2}


def test_the_last_statistics_of_each_interface_count() -> None:
    data = one_by_one(
        captures.interface(),
        captures.interface(),
        captures.statistics(3),
        captures.statistics(5),
        captures.statistics(7, 1),
        captures.statistics(9, 2),
    )
    assert read(data + one_by_one(captures.interface(), captures.statistics(100)))[1].dropped == 112


# -- what is no capture

FULL = captures.section() + captures.interface() * MAX_INTERFACES
#: behind the blocks of a capture
BAD_BLOCKS = [
    *(struct.pack("<II", 6, size) + b"\0" * 20 for size in (13, 8, MAX_BLOCK + 4)),
    block(99, b"1234")[:-1] + b"x",
    captures.enhanced(frames()[0], 1),
    block(6, struct.pack("<IIIII", 0, 0, 0, 100, 100) + b"x" * 50),
    block(6, b"\0" * 8),
    block(1, b"\0" * 4),
]
DAMAGE = [
    (pcap(frames()), struct.pack("<IIII", 1, 0, 2**31, 2**31)),
    (FULL, captures.interface()),
    *((pcapng(frames()), bad) for bad in BAD_BLOCKS),
]
REFUSED: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    *((data, "is not a packet capture") for data in (b"\xd4\xc3", b"PAR1" * 10, b"some text", pcap([])[:23])),
    (b"\x1f\x8b\x08\0\0\0", "is compressed"),
    (struct.pack("<IHHiIII", MICRO, 3, 4, 0, 0, 0, 1), "version 3"),
    (block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 2, 0, -1)), "version 2"),
    (block(0x0A0D0D0A, struct.pack("<IHHq", 0x11111111, 1, 0, -1)), "without a byte order"),
    *((whole + damage, f"is damaged at byte {len(whole)}:") for whole, damage in DAMAGE),
]


@pytest.mark.parametrize(("data", "why"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_capture_or_damaged_is_refused(data: bytes, why: str) -> None:
    assert why in refused(data)


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_the_end_of_one_that_was_cut_off_is_counted(make: Callable[[Iterable[Frame]], bytes]) -> None:
    data = make(frames())
    whole = len(make(frames()[:2]))
    for end in range(whole + 1, len(data)):
        found, tally = datagrams(data[:end])
        assert found == wanted(2)
        assert tally.cut_short == 1
    assert datagrams(data[:whole])[1].cut_short == 0
    # One without packets is a capture.
    assert counts(datagrams(make([]))[1]) == {}


# -- how a datagram is wrapped

INSIDE4 = ipv4(udp(BODY))
INSIDE6 = ipv6(udp(BODY))
# filled with bytes that are no headers
HOP = (0, b"\0" + b"\xff" * 6)
ROUTING = (43, b"\x02" + b"\xff" * 22)
DESTINATION = (60, b"\0" + b"\xff" * 6)
AUTHENTICATION = (51, b"\x04" + b"\xff" * 22)
ATOMIC = (44, b"\xff" + b"\0\0" + b"\x07" * 4)

PEER4, PEER6 = "10.0.0.1:4000", "[fe80::1]:4000"
EXTENDED = ipv6(udp(BODY), extensions=[HOP, DESTINATION, ROUTING, AUTHENTICATION, ATOMIC, DESTINATION])
TAGS = (0x9100, 0x88A8, 0x8100)

WRAPPED: dict[str, tuple[int, bytes, str]] = {
    "ethernet": (1, ether(INSIDE4), PEER4),
    "ethernet, padded": (1, ether(INSIDE4, padding=b"\0" * 20), PEER4),
    "ethernet, tagged": (1, ether(INSIDE4, tags=TAGS[2:]), PEER4),
    "ethernet, tagged three times": (1, ether(INSIDE6, tags=TAGS), PEER6),
    "ethernet, tagged as often as may be": (1, ether(INSIDE4, tags=TAGS[2:] * _MAX_TAGS), PEER4),
    "options": (1, ether(ipv4(udp(BODY), options=b"\x94\x04\0\0" * 10)), PEER4),
    "must not be fragmented": (1, ether(ipv4(udp(BODY), fragment=0x4000)), PEER4),
    "no payload": (1, ether(ipv4(udp(b""))), PEER4),
    "ipv6": (1, ether(INSIDE6), PEER6),
    "ipv6, extended": (1, ether(EXTENDED), PEER6),
    "raw": (101, INSIDE4, PEER4),
    "raw, of old": (12, INSIDE6, PEER6),
    "ipv4 alone": (228, INSIDE4, PEER4),
    "ipv6 alone": (229, INSIDE6, PEER6),
    "null": (0, null(INSIDE4), PEER4),
    "null of another machine": (0, null(INSIDE6, ">"), PEER6),
    "loop": (108, null(INSIDE4, ">"), PEER4),
    "cooked": (113, sll(INSIDE4), PEER4),
    "cooked, tagged twice": (113, sll(INSIDE4, tags=TAGS[1:]), PEER4),
    "cooked, version 2": (276, sll2(INSIDE4), PEER4),
    "cooked, version 2, tagged twice": (276, sll2(INSIDE4, tags=TAGS[1:]), PEER4),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_datagram_is_found_however_it_is_wrapped(name: str) -> None:
    link, data, peer = WRAPPED[name]
    tally = CaptureCounts()
    body = b"" if "no payload" in name else BODY
    assert unwrap(Packet(T, link, data, len(data)), PORT, tally) == Datagram(T, peer, body)
    assert counts(tally) == {"packets": 1, "datagrams": 1}
    whole = len(data) - 20 if "padded" in name else len(data)
    found = [unwrap(Packet(T, link, data[:end], len(data)), PORT, CaptureCounts()) for end in range(whole)]
    assert found == [None] * whole
    tally = CaptureCounts()
    unwrap(Packet(T, link, data[: whole - 1], len(data)), PORT, tally)
    assert counts(tally) == {"packets": 1, "truncated": 1}


def test_a_packet_cut_off_behind_its_port_is_for_it() -> None:
    for size, why in ((25, "other"), (26, "truncated")):
        tally = CaptureCounts()
        assert unwrap(Packet(T, 101, INSIDE4[:size], len(INSIDE4)), PORT, tally) is None
        assert counts(tally) == {"packets": 1, why: 1}


FRAGMENT = (44, b"\0" + b"\x01\x80" + b"\0\0\0\x07")
FIRST = (44, b"\0" + b"\0\x01" + b"\0\0\0\x07")

LEFT_OUT: dict[str, tuple[int, bytes, str]] = {
    "another port": (1, ether(ipv4(udp(BODY, port=53))), "other"),
    "the port as sender": (1, ether(ipv4(udp(BODY, 5400, 53))), "other"),
    "tcp": (1, ether(ipv4(b"\0" * 20, proto=6)), "other"),
    "arp": (1, ether(b"\0" * 28, 0x0806), "other"),
    "802.3": (1, ether(b"\0" * 60, 60), "other"),
    "nothing": (1, b"", "other"),
    "something that looks like a tag": (1, ether(b"\x12\x34\x08\0" + INSIDE4, 0x0806), "other"),
    "a tag too many": (1, ether(INSIDE4, tags=TAGS[2:] * (_MAX_TAGS + 1)), "other"),
    "a head alone": (1, ether(ipv4(b"")), "malformed"),
    "ipv6, a head alone": (1, ether(ipv6(b"")), "malformed"),
    "ipv6, an extension alone": (1, ether(ipv6(b"", extensions=[HOP])), "malformed"),
    "ipv6, longer than the packet": (1, ether(INSIDE6[:4] + b"\x03\0" + INSIDE6[6:]), "malformed"),
    "tags without end": (1, ether(INSIDE4, tags=[0x8100] * 20), "other"),
    "ip of another version": (101, b"\x50" + INSIDE4[1:], "other"),
    "icmp of version 6": (1, ether(ipv6(b"\0" * 20, proto=58)), "other"),
    "the first fragment": (1, ether(ipv4(udp(BODY, size=3000), fragment=0x2000)), "fragments"),
    "another fragment": (1, ether(ipv4(BODY, fragment=185)), "fragments"),
    "ipv6, the first fragment": (1, ether(ipv6(udp(BODY), extensions=[FIRST])), "fragments"),
    "ipv6, another fragment": (1, ether(ipv6(BODY, extensions=[HOP, FRAGMENT])), "fragments"),
    "ipv6, a fragment of tcp": (1, ether(ipv6(BODY, extensions=[FRAGMENT], proto=6)), "other"),
    "longer than the packet": (1, ether(ipv4(udp(BODY), total=1000)), "malformed"),
    "shorter than its own head": (1, ether(ipv4(udp(BODY), total=20)), "malformed"),
    "udp longer than ip": (1, ether(ipv4(udp(BODY, size=100))), "malformed"),
    "udp shorter than its head": (1, ether(ipv4(udp(BODY, size=7))), "malformed"),
    "another link": (127, INSIDE4, "unknown_link"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_other_packets_are_counted_by_reason(name: str) -> None:
    link, data, why = LEFT_OUT[name]
    tally = CaptureCounts()
    assert unwrap(Packet(T, link, data, len(data)), PORT, tally) is None
    assert counts(tally) == {"packets": 1, why: 1}
    assert tally.links == ({127} if why == "unknown_link" else set())


def test_unknown_links_are_remembered_up_to_a_number() -> None:
    tally = CaptureCounts()
    for link in range(1000, 2000):
        unwrap(Packet(T, link, b"", 0), PORT, tally)
    assert (tally.unknown_link, len(tally.links)) == (1000, 8)


EVERY = [*FILES.values(), *(pcap([Frame(T, data)], link=link) for link, data, _ in WRAPPED.values())]


@given(st.binary(max_size=300), st.sampled_from(EVERY), st.integers(0, 400), st.integers(0, 60))
def test_any_bytes_are_read_or_refused_as_a_bad_capture(noise: bytes, data: bytes, at: int, less: int) -> None:
    spoiled = data[:at] + noise + data[at + less :]
    if reason := reason_of(datagrams, spoiled):
        assert reason == "bad_capture"
        return
    tally = datagrams(spoiled)[1]
    others = tally.other + tally.unknown_link + tally.fragments + tally.truncated + tally.malformed
    assert tally.packets == tally.datagrams + others
