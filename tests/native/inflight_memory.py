"""Memory of in-flight states for tests, with a second mapping, as the next daemon has one."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bccnd.native.memory import inflight_layout as layout


@contextmanager
def new_memory() -> Iterator[tuple[mmap.mmap, mmap.mmap]]:
    """Yield the memory of a new state and a second mapping of it."""
    fd = os.memfd_create("inflight", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, layout.SIZE)
        ours, theirs = mmap.mmap(fd, layout.SIZE), mmap.mmap(fd, layout.SIZE)
    finally:
        os.close(fd)
    layout.initialize(ours)
    yield ours, theirs
    # The first mapping may still be in use.
    theirs.close()


def received(memory: mmap.mmap, slot: int) -> int:
    """Return how many messages of the last input a client got, by all that is recorded."""
    serial = layout.read_number(memory, layout.AT_SERIAL)
    recorded = layout.read_slot(memory, slot)
    sending = layout.read_sending(memory)
    found = recorded.got if recorded.serial == serial else 0
    return max(found, sending.got) if sending is not None and sending.slot == slot and not sending.length else found
