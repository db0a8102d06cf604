"""Detects that this host slept, or that its clock was set, by comparing the kernel's clocks with each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

#: microseconds: less is what the kernel corrects a clock by while it runs
STEP: Final = 500_000
#: microseconds within which the clocks must have been read, and how often that is tried
_TOGETHER: Final = 20_000
_TRIES: Final = 10

Cause = Literal["suspend", "clock"]


class Clocks(NamedTuple):
    """One moment by three clocks, in microseconds: the time of day, the time that this host was awake, and the time
    since it booted, asleep or not."""

    wall: int
    awake: int
    boot: int


def now() -> int:
    """Return the time in microseconds since 1970."""
    return time.time_ns() // 1000


def read_clocks(wall: Callable[[], int] = now) -> Clocks:
    """Read the clocks close together, even where the process is held up in between."""
    for _ in range(_TRIES):
        awake = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        clocks = Clocks(wall(), awake, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)
        if time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000 - awake < _TOGETHER:
            break
    return clocks


def cause_of_step(before: Clocks, after: Clocks) -> Cause | None:
    """Return why time went by that this host did not see, or that did not exist; None if there is no such time."""
    if (after.boot - before.boot) - (after.awake - before.awake) >= STEP:
        return "suspend"
    if abs((after.wall - before.wall) - (after.boot - before.boot)) >= STEP:
        return "clock"
    return None
