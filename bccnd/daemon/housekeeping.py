"""Runs what the daemon can do without: reports, samples, order in the memory.

Invariant: a task that fails is logged and run again, and never ends the daemon. An exception in any other callback of
the loop does: its state is unknown then, and the next daemon takes over the connections.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Final

from bccnd import log
from bccnd.daemon import memory_pages
from bccnd.net.loop import Loop

#: seconds between two collections of cyclic garbage
GC_INTERVAL: Final = 60.0
#: seconds between two steps of tidying the memory
TIDY_INTERVAL: Final = 0.01


class Housekeeping:
    """Schedules tasks on ``loop``."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def every(self, seconds: float, task: Callable[[], object]) -> None:
        """Run a task repeatedly."""
        self._loop.every(seconds, partial(_run, task))

    def order_memory(self) -> None:
        """Give back what only the start has needed, and collect cyclic garbage from now on."""
        # An automatic collection would walk all trackers in the midst of traffic. The hot path makes no cycles, so
        # what is new is collected once a minute. What the start has made stays, but for a few hundred objects.
        gc.disable()
        gc.freeze()
        for _ in memory_pages.tidy():
            pass
        self.every(GC_INTERVAL, _collect_garbage)

    def tidy_memory(self) -> None:
        """Give back freed memory, a step in a round of the loop."""
        steps = memory_pages.tidy()

        def take_step() -> None:
            if next(steps, self) is not self:
                self._loop.later(TIDY_INTERVAL, take_step)

        take_step()


def _run(task: Callable[[], object]) -> None:
    try:
        task()
    except Exception:  # noqa: BLE001 - the daemon can do without it
        log.bug("a periodic task failed because of a bug in this daemon; it will be tried again")


def _collect_garbage() -> None:
    gc.collect()
    gc.freeze()
