"""Reads and writes that wait, also where the descriptor is non-blocking.

O_NONBLOCK is a flag of the open file, which the parent shares and may set at any time, as Node, asyncio and ssh do. So
it is never changed here, and every read and write expects it.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def read_input(fd: int, size: int) -> bytes:
    """Read at most ``size`` bytes as soon as there are any; none at the end. Raises OSError."""
    while True:
        try:
            return os.read(fd, size)
        except BlockingIOError:
            _wait(fd, select.POLLIN)


def write_output(fd: int, data: ReadableBuffer) -> int:
    """Write as much as there is room for, as soon as there is any; return the number of bytes. Raises OSError."""
    while True:
        try:
            return os.write(fd, data)
        except BlockingIOError:
            wait_for_room(fd)


def wait_for_room(fd: int) -> None:
    """Wait until something can be written."""
    _wait(fd, select.POLLOUT)


def _wait(fd: int, events: int) -> None:
    poll = select.poll()
    poll.register(fd, events)
    poll.poll()
