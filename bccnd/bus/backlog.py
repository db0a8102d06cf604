"""What has waited for us, after a restart: delivered no faster than those who read take it.

Law: a restart of ours must not look to clients like a burst that they cannot cope with. Datagrams wait in the kernel
meanwhile, where there is more room than in a client's queue. Only for those who had kept up before is anybody made to
wait, while they read, and for no longer than is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from bccnd.bus.fanout import Clients
from bccnd.bus.segment_reader import SegmentReader
from bccnd.net.loop import Loop

#: seconds between two batches: clients read in the meantime
PAUSE: Final = 0.001


class Backlog:
    """Has each intake drained batch by batch until it is empty or ``patience`` seconds have passed; then ``done`` has
    it watched like any other."""

    def __init__(self, loop: Loop, clients: Clients, patience: float, done: Callable[[SegmentReader], None]) -> None:
        self._loop = loop
        self._clients = clients
        self._among = clients.keeping_up()
        self._until = time.monotonic() + patience
        self._done = done

    def begin(self, intakes: Iterable[SegmentReader]) -> None:
        for intake in intakes:
            self._go_on(intake)

    def _go_on(self, intake: SegmentReader) -> None:
        now = time.monotonic()
        if now < self._until and (self._clients.hard_pressed(self._among, now) or intake.drain(1)):
            self._loop.later(PAUSE, partial(self._go_on, intake))
        else:
            self._done(intake)
