"""Ledgers for tests: their memory, and a second mapping of it, as whoever comes after us has one."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bccnd.native import inflight_layout as layout


@contextmanager
def book() -> Iterator[tuple[mmap.mmap, mmap.mmap]]:
    """The memory of a new ledger, and the same memory as somebody else sees it."""
    fd = os.memfd_create("inflight", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, layout.SIZE)
        ours, theirs = mmap.mmap(fd, layout.SIZE), mmap.mmap(fd, layout.SIZE)
    finally:
        os.close(fd)
    layout.initialize(ours)
    yield ours, theirs
    # Ours may still be in use by what was made of it; it goes with that.
    theirs.close()


def got(memory: mmap.mmap, slot: int) -> int:
    """How much a client has got of the input that was worked on last, by all that a ledger says."""
    serial = layout.read_number(memory, layout.AT_SERIAL)
    its = layout.read_slot(memory, slot)
    armed = layout.read_sending(memory)
    found = its.got if its.serial == serial else 0
    return max(found, armed.got) if armed is not None and armed.slot == slot and not armed.length else found
