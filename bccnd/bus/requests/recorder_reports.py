"""Keeps the reports of recorders on dropped records, for metrics and pages.

Invariant: names come from a list and counts are numbers; anything else is no report. The counts of a recorder start
at 0 with its process, and stay after its end until another one reports.
"""

from __future__ import annotations

import json
from typing import Any, Final

from bccnd.bus.clients.client import Client
from bccnd.core.formats.strict_json import parse_json
from bccnd.core.observing.counters import read_count

#: families of the recorder's metrics, and the names in them; both are the same where there is but one
RECORDED: Final = (
    ("recorder_dropped_records", "disk"),
    ("recorder_dropped_records", "spool_full"),
    *((name, name) for name in ("recorder_tap_gap_records", "recorder_logs_torn", "recorder_logs_set_aside")),
    *((name, name) for name in ("recorder_logs_removed", "recorder_files_removed")),
)
#: bytes of a report at most
MAX_REPORT: Final = 4096


class RecorderReports:
    """Counts by recorder, of which there is usually one."""

    def __init__(self) -> None:
        self._counts: dict[Client, dict[str, int]] = {}

    def report(self, client: Client, text: bytes) -> bool:
        """Keep the counts of a recorder since its start; return False for bytes that are no report."""
        try:
            found: Any = parse_json(text) if len(text) <= MAX_REPORT else None
            if not isinstance(found, dict):
                return False
            counts = {key: read_count(found[key]) for key in map(_key, RECORDED) if key in found}
        except ValueError:
            return False
        self._counts = {one: old for one, old in self._counts.items() if one.open}
        self._counts[client] = counts
        return True

    def count(self, family: str, name: str) -> int:
        return sum(counts.get(_key((family, name)), 0) for counts in self._counts.values())


def _key(named: tuple[str, str]) -> str:
    family, name = named
    return f"{family}/{name}"


def report_of(counts: dict[tuple[str, str], int]) -> bytes:
    """Return the report that `RecorderReports.report` reads."""
    return json.dumps({_key(named): count for named, count in counts.items()}).encode("ascii")
