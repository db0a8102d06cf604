"""Runs what the daemon can do without: reports, samples, loading of what pages need, order in the memory.

Invariant: a task that fails is logged and run again, and never ends the daemon. An exception in any other callback of
the loop does: its state is unknown then, and the next daemon takes over the connections.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Final

from bccnd import log
from bccnd.daemon import memory
from bccnd.net.loop import Loop

#: seconds between two collections of cyclic garbage
GC_INTERVAL: Final = 60.0
#: what only pages need, in parts that take 5 to 10 ms each: the first request loads them, or else the loop, one by one
#: with so many seconds between them. http.server is what prometheus-client takes longest to load.
PAGE_MODULES: Final = (
    "http.server",
    "bccnd.monitoring.metrics",
    "bccnd.net.http_connection",
    "bccnd.monitoring.status_html",
)
PAGE_MODULES_INTERVAL: Final = 5.0
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
        """Order the memory after the start, and collect cyclic garbage from now on."""
        # An automatic collection would walk all trackers in the midst of traffic. The hot path makes no cycles, so
        # what is new is collected once a minute. What the start has made stays, but for a few hundred objects.
        gc.disable()
        gc.freeze()
        for _ in memory.tidy():
            pass
        self.every(GC_INTERVAL, _collect_garbage)

    def load_pages(self, modules: tuple[str, ...] = PAGE_MODULES) -> None:
        """Load what pages need, one module at a time, then tidy the memory."""
        if not modules:
            self._loop.later(PAGE_MODULES_INTERVAL, self.tidy_memory)
            return

        def load() -> None:
            left = modules
            # Out of descriptors: try again. What is not installed is reported by the request that needs it.
            with suppress(OSError):
                with suppress(ImportError):
                    import_module(modules[0])
                left = modules[1:]
            self.load_pages(left)

        self._loop.later(PAGE_MODULES_INTERVAL, load)

    def tidy_memory(self) -> None:
        """Order the memory, a step in a round of the loop."""
        steps = memory.tidy()

        def take_step() -> None:
            if next(steps, None) is not None:
                self._loop.later(TIDY_INTERVAL, take_step)

        take_step()


def _run(task: Callable[[], object]) -> None:
    try:
        task()
    except Exception:  # noqa: BLE001 - the daemon can do without it
        log.bug("a periodic task has failed because of a bug in this daemon; it will be tried again")


def _collect_garbage() -> None:
    gc.collect()
    gc.freeze()
