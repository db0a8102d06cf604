"""Counts the messages that this host has received and lost, by sending host.

A sending host is the first token of a src. Their number is capped: the one heard least recently is evicted. When it is
heard again its counters begin at 0, with another ``since_ms``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

#: sending hosts, unless configured
MAX_HOSTS: Final = 1000


class SenderCounts:
    """Counters of one sending host since a time (Unix, milliseconds): ``received`` datagrams were accepted; ``late``
    ones were dropped as stale, or accepted after they had been counted as lost. ``heard`` and ``placed`` order the
    eviction."""

    __slots__ = ("duplicate", "evicted", "heard", "host", "late", "lost", "placed", "received", "since_ms")

    def __init__(self, host: bytes, since_ms: int, now: float) -> None:
        self.host = host
        self.since_ms = since_ms
        self.received = 0
        self.lost = 0
        self.late = 0
        self.duplicate = 0
        self.heard = self.placed = now
        self.evicted = False


#: of sources that are not tracked
NO_SENDER: Final = SenderCounts(b"", 0, 0.0)


def sending_host(src: bytes) -> bytes:
    """Return the host in a src: all before the first slash."""
    return src.partition(b"/")[0]


class SenderTable:
    """The counters of all sending hosts, of which there are at most ``max_hosts()``; ``since_ms`` is when the daemon
    has started."""

    def __init__(self, max_hosts: Callable[[], int] = lambda: MAX_HOSTS, since_ms: int = 0) -> None:
        self._by_host: dict[bytes, SenderCounts] = {}
        self._max_hosts = max_hosts
        self.since_ms = since_ms
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._by_host)

    def __iter__(self) -> Iterator[SenderCounts]:
        return iter(list(self._by_host.values()))

    def of(self, src: bytes, now: float) -> SenderCounts:
        """Return the counters of the host of a src that is heard now."""
        host = sending_host(src)
        counts = self._by_host.get(host)
        if counts is None:
            while len(self._by_host) >= self._max_hosts():
                self._evict()
            # Differs after each eviction, so that new counters are not taken for those from before.
            counts = self._by_host[host] = SenderCounts(host, self.since_ms + self.evicted, now)
        return counts

    def get(self, src: bytes) -> SenderCounts | None:
        """Return the counters of the host of a src, if it was heard."""
        return self._by_host.get(sending_host(src))

    def _evict(self) -> None:
        """Evict the host heard least recently; those heard since they were placed are placed last, once each."""
        while True:
            host = next(iter(self._by_host))
            counts = self._by_host.pop(host)
            if counts.heard <= counts.placed:
                break
            counts.placed = counts.heard
            self._by_host[host] = counts
        counts.evicted = True
        self.evicted += 1
