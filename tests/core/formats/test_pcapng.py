"""Captures that are written are read back, by this project's reader."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats import pcapng
from bccnd.core.formats.pcap import CaptureCounts, Datagram, Packet, Reader, unwrap

ADDRESSES = st.ip_addresses()
PORTS = st.integers(0, 65535)


def read(capture: bytes) -> list[Packet]:
    reader = Reader("capture", CaptureCounts())
    packets = [*reader.feed(capture)]
    reader.finish()
    return packets


@given(ADDRESSES, PORTS, PORTS, st.binary(max_size=1500), st.integers(0, 2**62), st.text(max_size=40))
def test_a_datagram_is_read_back_with_its_sender_and_time(
    address: IPv4Address | IPv6Address, port: int, segment_port: int, payload: bytes, stamp: int, comment: str
) -> None:
    segment = f"ff02::bcc#{segment_port}" if address.version == 6 else f"10.0.0.255#{segment_port}"
    peer = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    blocks = pcapng.begin_section("test") + pcapng.describe_interface("other") + pcapng.describe_interface(segment)
    (packet,) = read(blocks + pcapng.packet(1, stamp, pcapng.udp_packet(peer, segment, payload), comment))
    assert unwrap(packet, segment_port, CaptureCounts()) == Datagram(stamp, peer, payload)


@given(st.binary(max_size=300), st.sampled_from(["nng", "segment", "", "999.1.1.1#5", "10.0.0.255"]))
def test_what_a_link_brought_has_zeros_for_an_unknown_address(payload: bytes, segment: str) -> None:
    capture = pcapng.begin_section("test") + pcapng.describe_interface("nng")
    (packet,) = read(capture + pcapng.packet(0, 7, pcapng.udp_packet("10.0.0.7:40000", segment, payload), "accepted"))
    assert unwrap(packet, 0, CaptureCounts()) == Datagram(7, "10.0.0.7:40000", payload)
    assert pcapng.udp_packet("[::1]:5", segment="nng", payload=payload)[24:40] == bytes(16)
