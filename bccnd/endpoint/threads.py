"""The lock of all threads that send by endpoints, and the thread that sends heartbeats.

Invariant: a signal handler may interrupt any call, and make the same one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

#: Held while a seq is given and used, by whichever endpoint, and while this process forks: no thread can then be in the
#: midst of sending, and the child finds the lock free and every seq either used or not.
SENDING: Final = threading.Condition(threading.RLock())
os.register_at_fork(before=SENDING.acquire, after_in_parent=SENDING.release, after_in_child=SENDING.release)


def _is_sending() -> bool:
    """Whether this thread holds the lock: a signal handler has interrupted `send`."""
    try:
        SENDING.notify()
    except RuntimeError:
        return False
    return True


class Heartbeat:
    """A thread that sends heartbeats until `stop`."""

    def __init__(self, beat: Callable[[], None], interval: float) -> None:
        self._beat = beat
        self._interval = interval
        self._pid = os.getpid()
        #: released by `stop`; the methods of an Event could not be interrupted by themselves
        self._goes_on = threading.Lock()
        self._goes_on.acquire()
        self._thread = threading.Thread(target=self._run, name="bccn-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while not self._goes_on.acquire(timeout=max(0.0, due - time.monotonic())):
            self._beat()
            due = max(due + self._interval, time.monotonic())

    def stop(self) -> None:
        """Send no more heartbeats; but for one that waits for its turn, if a signal handler that has interrupted `send`
        calls this."""
        # The thread belongs to the process that has started it; a child has neither it nor a use for its locks.
        if self._pid != os.getpid():
            return
        with suppress(RuntimeError):  # it was stopped before
            self._goes_on.release()
        if self._thread is not threading.current_thread() and not _is_sending():
            self._thread.join()
