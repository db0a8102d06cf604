"""Limits how long calls into libsystemd wait for a stalled service manager or journal.

systemd-python 235 holds the interpreter lock during `daemon.notify` and `journal.sendv`, so that a worker thread would
stall the loop as well. Instead a timer signal ends the system call: libsystemd reports EINTR, and nothing was sent.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

#: seconds that a call may wait
TIMEOUT: Final = 0.001


@contextlib.contextmanager
def libsystemd_timeout() -> Iterator[None]:
    """Make system calls in this block fail with EINTR after `TIMEOUT`.

    The signal repeats, in case the first one arrives before the call. It works in the main thread only: other threads
    wait. This module owns SIGALRM from the first call on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGALRM) is not _interrupt:
        signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT, TIMEOUT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(_number: int, _frame: object) -> None:
    """Do nothing: running a handler is what ends the system call."""
