"""Declares inflight.pyx, which records the input in progress in shared memory for the successor of a killed daemon.

A plain build never makes these objects: it keeps nothing over a restart. See inflight_layout.py.
"""

from __future__ import annotations

from mmap import mmap

from bccnd.native.memory.slots import SlotMemory
from bccnd.native.system import sockio


class InflightState:
    """The input in progress, and how many of its messages each client got.

    Clients are named by descriptors, to which slots are assigned; a client without a slot is not recorded.
    """

    memory: mmap
    #: number of the current or last input
    serial: int

    def __init__(self, memory: mmap) -> None: ...

    def attach(self, slots: SlotMemory) -> None:
        """Begin and commit a change of ``slots`` with each input."""

    def assign(self, fd: int, slot: int) -> None:
        """Assign a slot to a client. Raises IndexError for an invalid slot."""

    def release(self, fd: int) -> None: ...

    def begin(self, kind: int, number: int, fd: int = -1) -> None:
        """Begin an input of a kind from the segment or client with a number; ``fd`` is the client's."""

    def finish(self) -> None:
        """Mark the input as completely processed."""

    def set_time(self, now: float) -> None:
        """Record the time by which the input is judged."""

    def count(self, fd: int, messages: int) -> None:
        """Count messages of this input that a client got other than through `Sender`."""

    def counted(self, fd: int) -> int:
        """Return how many messages of this input a client got."""
        raise NotImplementedError

    def set_next_seq(self, fd: int, seq: int) -> None:
        """Record the next seq of a client."""


class Receiver(sockio.Receiver):
    """Receives batches of the segment ``number``, named ``label``; each begins an input, which the caller finishes."""

    def __init__(
        self, inflight: InflightState, number: int, label: bytes, fd: int, largest: int, name_size: int
    ) -> None: ...


class Sender(sockio.Sender):
    """Sends packets to clients, recording those sent; at most `inflight_layout.MAX_PACKETS` at a time."""

    def __init__(self, inflight: InflightState) -> None: ...


class BroadcastSender(sockio.BroadcastSender):
    """Broadcasts to segment ``number`` at ``address`` (sockaddr), recording what was sent until the next input from a
    client. Raises IndexError for an invalid number or address."""

    def __init__(self, inflight: InflightState, number: int, fd: int, address: bytes) -> None: ...


class PacketReceiver(sockio.PacketReceiver):
    """Receives packets from clients; each begins an input, which the caller finishes."""

    def __init__(self, inflight: InflightState) -> None: ...
