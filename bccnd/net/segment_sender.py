"""Sends the datagrams of one segment and counts them."""

from __future__ import annotations

import errno

from bccnd.core.observing.counters import SegmentCounters
from bccnd.native.system.sockio import BroadcastSender


class SegmentSender:
    """``sender`` sends, and may be replaced; ``already_sent`` suppresses what an input being replayed has sent."""

    def __init__(self, counters: SegmentCounters, sender: BroadcastSender) -> None:
        self.counters = counters
        self.sender = sender
        self.already_sent = False

    def broadcast(self, datagram: bytes) -> str | None:
        """Broadcast a datagram without waiting; return the errno's name if the kernel refused. Both are counted."""
        if self.already_sent:
            return None
        failed = self.sender.cast(datagram)
        if failed:
            name = errno.errorcode.get(failed, "UNKNOWN")
            self.counters.errors.add(name)
            return name
        self.counters.count_sent()
        return None
