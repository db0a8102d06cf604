"""The clocks: one that never goes back, and the one on the wall."""

from __future__ import annotations

import time
from typing import Final

#: whether this is the one in C terms, and so whether what is on the list of setup.py was built
COMPILED: Final = False


def monotonic() -> float:
    """Seconds since some point in the past."""
    return time.monotonic()


def wall_ns() -> int:
    """Nanoseconds since 1970."""
    return time.time_ns()
