"""Sends the datagrams of one segment and counts them."""

from __future__ import annotations

import errno

from bccnd.core.observing.counters import SegmentCounters
from bccnd.native.system.sockio import BroadcastSender


class SegmentSender:
    """``broadcaster`` sends: from the start without recording, after `Segment.record_sends` with it. ``already_sent``
    suppresses what an input being replayed has sent."""

    def __init__(self, counters: SegmentCounters, broadcaster: BroadcastSender) -> None:
        self.counters = counters
        self.broadcaster = broadcaster
        self.already_sent = False

    def broadcast(self, datagram: bytes) -> str | None:
        """Broadcast a datagram without waiting; return the errno's name if the kernel refused. Both are counted."""
        if self.already_sent:
            return None
        failed = self.broadcaster.cast(datagram)
        if failed:
            name = errno.errorcode.get(failed, "UNKNOWN")
            self.counters.errors.add(name)
            return name
        self.counters.count_sent()
        return None
