"""Sends the datagrams of one segment, counts them, and logs errors."""

from __future__ import annotations

import errno

from bccnd import log
from bccnd.core.observing.counters import SegmentCounters
from bccnd.native.buffers.sent_datagrams import SentDatagrams
from bccnd.native.system import clock
from bccnd.native.system.sockio import send_to


class SegmentSender:
    """Sends from the socket ``fd`` to ``address``, packed as the kernel takes it; ``sent`` has the datagrams that have
    not come back."""

    def __init__(self, counters: SegmentCounters, fd: int, address: bytes) -> None:
        self.counters = counters
        self.sent = SentDatagrams()
        self.fd = fd
        self._address = address

    def send(self, datagram: bytes) -> str | None:
        """Send a datagram without waiting; return the errno's name if the kernel refused."""
        failed = send_to(self.fd, datagram, self._address)
        if failed:
            return self._count_error(failed)
        self.counters.sent += 1
        self.sent.put(datagram, clock.monotonic())
        return None

    def _count_error(self, failed: int) -> str:
        error = errno.errorcode.get(failed, "UNKNOWN")
        segment = self.counters.name
        self.counters.errors.add(error)
        log.event(
            "send_failed",
            f"segment {segment}: cannot broadcast: {error}",
            about=f"send/{segment}/{error}",
            remedy="check that the interface is up and has an address (ip address), that there is a route (ip route), "
            "and that no firewall refuses it (nft list ruleset)",
            segment=segment,
            error=error,
            drop="send_errors",
        )
        return error
