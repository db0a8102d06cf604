"""Packets as a client gets them, with and without batches."""

from __future__ import annotations

from collections.abc import Iterable

from bccnd.core import frames


def is_batch(packet: bytes) -> bool:
    return packet.startswith(frames.MSGS + b" ")


def unbatched(packets: Iterable[bytes]) -> list[bytes]:
    """The frames of the packets, whichever way they came."""
    return [frame for packet in packets for frame in (frames.read_batch(packet) if is_batch(packet) else [packet])]
