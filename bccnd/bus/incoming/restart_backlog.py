"""Delivers the datagrams that have waited in the kernel during a restart, no faster than clients read them.

Invariant: a restart is no burst for clients. Datagrams wait in the kernel, which has more room than a client's queue;
only for clients that had kept up before, while they read, and no longer than ``patience``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from bccnd.bus.delivery.client_queues import ClientQueues
from bccnd.bus.incoming.segment_reader import SegmentReader
from bccnd.net.loop import Loop

#: seconds between two batches: clients read in the meantime
PAUSE: Final = 0.001


class Backlog:
    """Drains segments batch by batch until they are empty or ``patience`` seconds have passed; then calls ``done``."""

    def __init__(
        self, loop: Loop, queues: ClientQueues, patience: float, done: Callable[[SegmentReader], None]
    ) -> None:
        self._loop = loop
        self._queues = queues
        self._among = queues.keeping_up()
        self._until = time.monotonic() + patience
        self._done = done

    def read(self, readers: Iterable[SegmentReader]) -> None:
        for reader in readers:
            self._read(reader)

    def _read(self, reader: SegmentReader) -> None:
        now = time.monotonic()
        if now < self._until and (self._queues.hard_pressed(self._among, now) or reader.read_available(1)):
            self._loop.later(PAUSE, partial(self._read, reader))
        else:
            self._done(reader)
