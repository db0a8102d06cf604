"""Sending the datagrams of a segment: they arrive and are counted, and so are errors."""

from __future__ import annotations

import socket

from bccnd.core.observing.counters import SegmentCounters
from bccnd.net.segment_opening import pack_address
from bccnd.net.segment_sender import SegmentSender


def test_datagrams_go_to_the_address_and_errors_are_counted() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as theirs, socket.socket(type=socket.SOCK_DGRAM) as ours:
        theirs.bind(("127.0.0.1", 0))
        theirs.settimeout(20)
        sender = SegmentSender(SegmentCounters("lan"), ours.fileno(), pack_address(theirs.getsockname()))
        assert [sender.send(datagram) for datagram in (b"a", b"x" * 70_000, b"b")] == [None, "EMSGSIZE", None]
        assert [theirs.recv(100), theirs.recv(100)] == [b"a", b"b"]
    assert (sender.counters.sent, sender.counters.errors.all(), len(sender.sent)) == (2, {"EMSGSIZE": 1}, 2)
