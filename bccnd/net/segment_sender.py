"""Sends the datagrams of one segment and counts them."""

from __future__ import annotations

import errno

from bccnd.core.observing.counters import SegmentCounters
from bccnd.native.buffers.sent_datagrams import SentDatagrams
from bccnd.native.system import clock
from bccnd.native.system.sockio import BroadcastSender


class SegmentSender:
    """Sends by ``broadcaster``; ``sent`` holds what has not come back."""

    def __init__(self, counters: SegmentCounters, broadcaster: BroadcastSender) -> None:
        self.counters = counters
        self.broadcaster = broadcaster
        self.sent = SentDatagrams()

    def broadcast(self, datagram: bytes) -> str | None:
        """Broadcast a datagram without waiting; return the errno's name if the kernel refused. Both are counted."""
        failed = self.broadcaster.broadcast(datagram)
        if failed:
            name = errno.errorcode.get(failed, "UNKNOWN")
            self.counters.errors.add(name)
            return name
        self.counters.sent += 1
        self.sent.put(datagram, clock.monotonic())
        return None
