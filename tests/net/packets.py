"""Packets as a client gets them, with and without batches, and the modes in which it gets them."""

from __future__ import annotations

from collections.abc import Iterable

from bccnd.core import frames
from tests.support import Peer


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
