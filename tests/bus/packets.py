"""Packets as a client gets them, with and without batches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bccnd.core.matching.receivers import Receivers
from bccnd.core.wire import frames
from tests.support import Peer, gaps, messages


def page(peer: Peer, topic: bytes) -> dict[str, Any]:
    """A page of a listing."""
    peer.send(frames.request(frames.STATS, topic))
    return dict(json.loads(peer.receive().partition(b"\0")[2]))


def is_batch(packet: bytes) -> bool:
    return packet.startswith(frames.MSGS + b" ")


def unbatched(packets: Iterable[bytes]) -> list[bytes]:
    """The frames of the packets, whichever way they came."""
    return [frame for packet in packets for frame in (frames.read_batch(packet) if is_batch(packet) else [packet])]


def numbered(first: int, count: int, tail: bytes = b"") -> list[bytes]:
    """Messages with numbers; what is large enough waits."""
    return [b"MSG a\0%06d" % number + tail for number in range(first, first + count)]


def numbers(packets: Iterable[bytes], key: bytes = b"a") -> list[int]:
    return [int(payload.rstrip(b"xy")) for payload in messages(unbatched(packets), key)]


def to(peers: Iterable[Peer], found: Iterable[bytes]) -> list[tuple[Receivers, bytes]]:
    """Frames for these, as the segment hands them on."""
    receivers = Receivers(tuple([one.client.fd for one in peers]))
    return [(receivers, frame) for frame in found]


def accounted(packets: Iterable[bytes]) -> int:
    found = unbatched(packets)
    return sum(packet.startswith(b"MSG ") for packet in found) + gaps(found)
