"""Bounds the calls into libsystemd, which wait where the service manager or the journal stands still.

systemd-python (version 235) keeps the interpreter's lock during `daemon.notify` and `journal.sendv`: called in a worker
thread they would stop the loop as well, for as long as they wait. A timer's signal ends the system call instead, and
libsystemd reports EINTR: then nothing was sent.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

#: seconds that a call may wait
PATIENCE: Final = 0.001


@contextlib.contextmanager
def interrupted(seconds: float = PATIENCE) -> Iterator[None]:
    """Make system calls that wait fail with EINTR after ``seconds``, as long as this block lasts.

    The signal repeats, so that one that comes too early for the call does no harm. Signals work in the main thread
    only: elsewhere calls wait. SIGALRM is this module's from the first call on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGALRM) is not _interrupt:
        signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(_number: int, _frame: object) -> None:
    """Do nothing: that a handler ran is what ends the system call."""
