"""What recorders tell the daemon of what they do not keep, so that it stands where all else stands that is dropped.

Law: names come from a list and counts are numbers; what makes no sense is no report. A recorder's counts begin anew
with it, and stay after it until another one has something to tell.
"""

from __future__ import annotations

import json
from typing import Any, Final

from bccnd.bus.fanout import Client
from bccnd.core.counters import read_count

#: families of the recorder's metrics, and the names in them; both are the same where there is but one
RECORDED: Final = (
    ("recorder_dropped_records", "disk"),
    ("recorder_dropped_records", "spool_full"),
    *((name, name) for name in ("recorder_tap_gap_records", "recorder_logs_torn", "recorder_logs_set_aside")),
    *((name, name) for name in ("recorder_logs_removed", "recorder_files_removed")),
)
#: a report that is longer is none
MAX_REPORT: Final = 4096


class RecorderReports:
    """Counts by recorder, of which there is usually one."""

    def __init__(self) -> None:
        self._told: dict[Client, dict[str, int]] = {}

    def report(self, client: Client, text: bytes) -> bool:
        """A recorder tells what it has dropped since it was started; False for what makes no sense."""
        try:
            said: Any = json.loads(text) if len(text) <= MAX_REPORT else None
            if not isinstance(said, dict):
                return False
            counts = {key: read_count(said[key]) for key in map(_key, RECORDED) if key in said}
        except (ValueError, TypeError, OverflowError, RecursionError):
            return False
        self._told = {one: old for one, old in self._told.items() if one.open}
        self._told[client] = counts
        return True

    def count(self, family: str, name: str) -> int:
        return sum(counts.get(_key((family, name)), 0) for counts in self._told.values())


def _key(named: tuple[str, str]) -> str:
    family, name = named
    return f"{family}/{name}"


def report_of(counts: dict[tuple[str, str], int]) -> bytes:
    """What `RecorderReports.report` reads."""
    return json.dumps({_key(named): count for named, count in counts.items()}).encode("ascii")
