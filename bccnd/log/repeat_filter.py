"""Suppresses repeated log records, and counts them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable
from typing import Final

#: seconds between two records about the same thing
QUIET: Final = 60.0
#: records of one event within that time, about different things
MAX_RECORDS: Final = 50
#: things remembered; a bound against mistakes, which the daemon does not reach
MAX_THINGS: Final = 4096
_NEVER: Final = -math.inf


class RepeatFilter(logging.Filter):
    """Passes a record about a new thing at once, and a repeated one after ``quiet`` seconds with its number of repeats.

    The attribute ``about`` of a record names its thing; a record without it always passes.
    """

    def __init__(self, quiet: float = QUIET, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._quiet = quiet
        self._now = now
        #: records beyond `MAX_RECORDS`
        self.left_out = 0
        self.clear()

    def clear(self) -> None:
        """Forget what was logged."""
        #: by thing: when it was last logged, and how often it was suppressed since
        self._seen: dict[Hashable, tuple[float, int]] = {}
        #: by event: since when records are counted, their number, and the number of suppressed ones
        self._events: dict[str, tuple[float, int, int]] = {}
        #: by counter: when its growth was last reported, and its value then
        self._counters: dict[Hashable, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        about = getattr(record, "about", None)
        if about is None:
            return True
        event: str = getattr(record, "event", "")
        if self.suppress(event, about):
            return False
        now = self._now()
        _, repeats = self._seen.get((event, about), (now, 0))
        since, records, others = self._events.get(event, (now, 0, 0))
        if now - since >= self._quiet:
            since, records = now, 0
        self._events[event] = (since, records + 1, 0)
        if len(self._seen) >= MAX_THINGS:
            self._seen.clear()
        self._seen[event, about] = (now, 0)
        more = f" ({repeats} more times since the last line)" if repeats else ""
        if others:
            more += f" ({others} lines about other things suppressed)"
        record.args = (f"{record.getMessage()}{more}",)
        record.msg = "%s"
        record.fields = {"count": repeats + 1, **getattr(record, "fields", {})}
        return True

    def suppress(self, event: str, about: Hashable) -> bool:
        """Whether a record would be suppressed; it is counted if so. Spares callers making the record."""
        now = self._now()
        since, repeats = self._seen.get((event, about), (_NEVER, 0))
        if now - since < self._quiet:
            self._seen[event, about] = (since, repeats + 1)
            return True
        since, records, others = self._events.get(event, (now, 0, 0))
        if now - since < self._quiet and records >= MAX_RECORDS:
            self._events[event] = (since, records, others + 1)
            self.left_out += 1
            return True
        return False

    def resume(self, counter: Hashable, value: int) -> None:
        """Count the growth of a counter from a value that was reported before."""
        self._counters[counter] = (_NEVER, value)

    def growth(self, counter: Hashable, value: int) -> int:
        """Return how much a counter has grown since that was last reported, if it is time to report it; else 0."""
        now = self._now()
        since, reported = self._counters.get(counter, (_NEVER, 0))
        if value == reported or now - since < self._quiet:
            return 0
        self._counters[counter] = (now, value)
        return value - reported if value > reported else value  # the counter restarted
