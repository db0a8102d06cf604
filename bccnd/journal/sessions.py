"""Sessions of a journal: when a receiver was listening without a break, and which records it has of that time.

Invariant: a session never claims too much. Its last number is that of a record in a finished file: a number up to it
that is in no file belongs to a file that is missing, not to a datagram that was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: why a session began: the recorder connected; the disk had room again; this host woke up; its clock had been set; or
#: that is not known
Cause = Literal["start", "resumed", "suspend", "clock", ""]


@dataclass
class RecorderSession:
    """Times in microseconds since 1970. ``first`` is the number of its first record, ``last`` that of the last one in
    finished files, and ``first - 1`` if there is none."""

    start: int
    end: int
    socket_drops: int = 0
    tap_gaps: int = 0
    first: int = 1
    last: int = 0
    cause: Cause = ""

    def extend(self, until: int, drops: int) -> None:
        """Note that all that came up to ``until`` is logged, and what the kernel has dropped since the start."""
        self.end = max(self.end, until)
        self.socket_drops = max(self.socket_drops, drops)
