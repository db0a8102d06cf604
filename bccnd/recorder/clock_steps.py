"""Detects that this host slept, or that its clock was set, by comparing the kernel's clocks with each other; and
whether its clock can be believed."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from bccnd import boot_clock

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


def read_clocks() -> Clocks:
    """Read the clocks close together, even where the process is held up in between."""
    for _ in range(_TRIES):
        awake = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        clocks = Clocks(time.time_ns() // 1000, awake, boot_clock.now_ns() // 1000)
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


# -- whether the clock can be believed

#: microseconds since the last step of a clock that is believed again
SETTLED: Final = 600 * 1_000_000
#: flag of the kernel's clock: no time service has corrected it since it was set, or for hours
_STA_UNSYNC: Final = 0x40


class _Timex(ctypes.Structure):
    """The beginning of ``struct timex``, and room for the rest. ``modes`` of 0 changes nothing."""

    _fields_ = (
        ("modes", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 512),
    )


def is_synchronised() -> bool:
    """Whether a time service keeps the clock of this host right, as it has told the kernel. Raises OSError."""
    answered = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(answered)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return not answered.status & _STA_UNSYNC


class ClockTrust:
    """Tells whether the time of day can be believed: it is synchronised, and was not set lately."""

    def __init__(
        self, read: Callable[[], Clocks] = read_clocks, synchronised: Callable[[], bool] = is_synchronised
    ) -> None:
        self._read, self._synchronised = read, synchronised
        self._clocks = read()
        self._stepped = 0

    def doubt(self) -> str:
        """Return why the clock cannot be believed, empty if it can."""
        before, self._clocks = self._clocks, self._read()
        if abs((self._clocks.wall - before.wall) - (self._clocks.boot - before.boot)) >= STEP:
            self._stepped = self._clocks.boot
        try:
            if not self._synchronised():
                return "it is not synchronised"
        except OSError as error:
            return f"whether it is synchronised cannot be read: {error.strerror}"
        return "it was set just now" if self._stepped and self._clocks.boot - self._stepped < SETTLED else ""
