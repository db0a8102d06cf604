"""The clock that counts from the boot of the host, also while it sleeps; setting the time of day does not move it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def now_ns() -> int:
    """Return the nanoseconds since this host booted."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def now() -> float:
    """Return the seconds since this host booted."""
    return now_ns() / 1e9


def read_boot_id() -> str:
    """Return what names this boot of the host; empty if that cannot be read."""
    with suppress(OSError), open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()
    return ""
