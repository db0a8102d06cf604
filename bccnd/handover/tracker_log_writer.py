"""Maintains the log of source trackers that the next daemon replays.

Writes what time alone has changed, and starts a new file when the present one has grown too large or cannot be written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bccnd import log
from bccnd.core.tracker_log import TrackerLog
from bccnd.handover.stored_state import Handover

#: seconds until a new file is tried after an error: the first time, and at most
SHORTEST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0


def first_file(handover: Handover) -> Callable[[bytes], int]:
    """Begin the log; if that fails, so does each write, and `TrackerLogWriter` tries again."""
    try:
        return handover.new_tracker_log()
    except OSError as error:
        reason = error

    def fail(_record: bytes) -> int:
        raise reason

    return fail


class TrackerLogWriter:
    """``failures`` counts how often the log could not be written."""

    def __init__(self, handover: Handover, tracker_log: TrackerLog) -> None:
        self.failures = 0
        self._handover = handover
        self._tracker_log = tracker_log
        self._pause = SHORTEST_PAUSE
        #: when the next file may be started (monotonic)
        self._next_try = 0.0

    def step(self, now: float) -> bool:
        """Do the next piece of work; True when there is more of it."""
        tracker_log = self._tracker_log
        more = tracker_log.step(now)
        if tracker_log.complete:
            self._handover.drop_old_tracker_logs()
            self._pause = SHORTEST_PAUSE
        failed = tracker_log.failed
        if now < self._next_try or not (tracker_log.due or failed):
            return more
        try:
            tracker_log.rotate(self._handover.new_tracker_log())
            failed = failed or tracker_log.failed
        except OSError as error:
            failed = error.strerror or str(error)
        if failed:
            self._next_try = now + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self.failures += 1
            effect = "after a restart the daemon starts with no sources" if tracker_log.failed else "their log grows"
            log.event(
                "not_kept",
                f"source trackers cannot be stored: {failed}; {effect}",
                about="tracker_log",
                remedy="raise FileDescriptorStoreMax=, LimitNOFILE=, LimitFSIZE= or MemoryMax= of the service",
                error=failed,
                drop="sources_not_kept",
            )
        return more
