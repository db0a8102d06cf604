"""Bounds the calls into libsystemd, which wait where the service manager or the journal stands still.

systemd-python (version 235) keeps the interpreter's lock during `daemon.notify` and `journal.sendv`: called in a worker
thread they would stop the loop as well, for as long as they wait. A timer's signal ends the system call instead, and
libsystemd reports EINTR: then nothing was sent.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

#: seconds that a call may wait
PATIENCE: Final = 0.001


@contextlib.contextmanager
def interrupted(seconds: float = PATIENCE) -> Iterator[None]:
    """Have system calls that wait fail with EINTR after ``seconds``, as long as this block lasts.

    The signal repeats, so that one that comes too early for the call does no harm. Signals work in the main thread
    only: elsewhere calls wait.
    """
    try:
        handler = signal.signal(signal.SIGALRM, _interrupt)
    except ValueError:
        yield
        return
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


def _interrupt(_number: int, _frame: object) -> None:
    """Do nothing: that a handler ran is what ends the system call."""
