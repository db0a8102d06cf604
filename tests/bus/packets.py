"""Packets as a client gets them, with and without batches, and the modes in which it gets them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from bccnd.core.matching.receivers import Receivers
from bccnd.core.wire import frames
from tests.support import Hub, Peer, gaps, messages

#: a few of them are more than the kernel keeps for one client, whatever it has been asked to keep
LARGE: Final = b"x" * 30_000


def page(peer: Peer, topic: bytes) -> dict[str, Any]:
    """A page of a listing."""
    peer.send(frames.request(frames.STATS, topic))
    return dict(json.loads(peer.receive().partition(b"\0")[2]))


def is_batch(packet: bytes) -> bool:
    return packet.startswith(frames.MSGS + b" ")


def unbatched(packets: Iterable[bytes]) -> list[bytes]:
    """The frames of the packets, whichever way they came."""
    return [frame for packet in packets for frame in (frames.read_batch(packet) if is_batch(packet) else [packet])]


def mode(peer: Peer, soft: str = "", hard: str = "", order: str = "") -> None:
    """Set modes, and wait until they are in force."""
    for key, value in ((frames.SOFT, soft), (frames.HARD, hard), (frames.ORDER, order)):
        if value:
            peer.send(frames.request(key + value.encode()))
    peer.hub.settle()


def numbered(first: int, count: int, tail: bytes = b"") -> list[bytes]:
    """Messages with numbers; what is large enough waits."""
    return [b"MSG a\0%06d" % number + tail for number in range(first, first + count)]


def numbers(packets: Iterable[bytes], key: bytes = b"a") -> list[int]:
    return [int(payload.rstrip(b"xy")) for payload in messages(unbatched(packets), key)]


def to(peers: Iterable[Peer], found: Iterable[bytes]) -> list[tuple[Receivers, bytes]]:
    """Frames for these, as the segment hands them on."""
    receivers = Receivers(tuple([one.client.fd for one in peers]))
    return [(receivers, frame) for frame in found]


def from_segment(hub: Hub, peers: Iterable[Peer], found: Iterable[bytes]) -> None:
    """The segment brings frames for these, all at once, and the round ends."""
    hub.deliver(*to(peers, found))
    hub.turn(1)


def clog(hub: Hub, peer: Peer, waiting: int = 1, tail: bytes = LARGE) -> int:
    """Let so many messages wait for a client; how many of them that took."""
    count = 0
    while peer.client.queue.messages < waiting:
        assert count < 1000
        from_segment(hub, [peer], numbered(count, 1, tail))
        count += 1
    return count


def accounted(packets: Iterable[bytes]) -> int:
    found = unbatched(packets)
    return sum(packet.startswith(b"MSG ") for packet in found) + gaps(found)
