"""Loads the configuration for a reload without stopping the loop.

Names of users and groups may come from a directory service (LDAP) that takes long to answer: a thread waits for it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Lock, Thread
from typing import Final

from bccnd.config import Configuration
from bccnd.errors import ConfigError, Fault
from bccnd.net.loop import READABLE, Loop, Timer

#: seconds to wait; the service manager waits longer for the end of a reload
TIMEOUT: Final = 30.0

#: returns a configuration or raises why there is none
Outcome = Callable[[], Configuration]


class BackgroundLoader:
    """Calls ``load`` in a thread, and then, on the loop, ``done`` with its outcome. At most one thread runs."""

    def __init__(self, loop: Loop, load: Outcome, done: Callable[[Outcome], None]) -> None:
        self._loop = loop
        self._load = load
        self._done = done
        self._running = False
        #: whether to load again when the thread ends: the file may have changed since it was read
        self._again = False
        self._timer: Timer | None = None
        self._outcome: Outcome = load
        #: the thread writes to it when it ends
        self._ended = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = Lock()
        loop.watch(self._ended, READABLE, self._on_end)

    def start(self) -> None:
        """Load; if that is under way already, load again afterwards."""
        if self._timer is None:
            self._timer = self._loop.later(TIMEOUT, self._give_up)
        if self._running:
            self._again = True
            return
        self._again = False
        self._running = True
        try:
            Thread(target=self._run, daemon=True).start()
        except RuntimeError as error:  # too many threads
            self._running = False
            self._finish(_failed(f"cannot read it: {error}", "raise TasksMax= of the service"))

    def _run(self) -> None:
        # The main thread handles signals, and one of them limits its system calls.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            configuration = self._load()
            self._outcome = lambda: configuration
        except Exception as error:  # noqa: BLE001 - raised again on the loop
            self._outcome = _raiser(error)
        with self._lock:
            if self._ended >= 0:
                os.eventfd_write(self._ended, 1)

    def _on_end(self, _events: int) -> None:
        os.eventfd_read(self._ended)
        self._running = False
        if self._again:
            self.start()
        elif self._timer is not None:
            self._finish(self._outcome)

    def _finish(self, outcome: Outcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._done(outcome)

    def _give_up(self) -> None:
        """Report that loading takes too long. What the thread finds later is not used, unless `start` is called."""
        self._again = False
        remedy = "check that the directory service answers ('getent group NAME'), and reload again"
        self._finish(_failed(f"reading it and finding its users and groups took more than {TIMEOUT:g} s", remedy))

    def close(self) -> None:
        """Stop waiting; a thread that still runs ends with the process."""
        self._loop.unwatch(self._ended)
        with self._lock:
            os.close(self._ended)
            self._ended = -1


def _failed(reason: str, remedy: str) -> Outcome:
    return _raiser(ConfigError([Fault("the configuration", 0, "", reason, remedy)]))


def _raiser(error: Exception) -> Outcome:
    def outcome() -> Configuration:
        raise error

    return outcome
