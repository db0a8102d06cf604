"""Serves the pages for people, static files, and the JSON that they show.

Invariant: requests within a second get the same JSON, so that the cost does not grow with the number of readers.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Final

from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.fleet_page import FleetPage, write_fleet, write_table
from bccnd.monitoring.status_collector import StatusCollector
from bccnd.net.http import Answer, Page
from bccnd.snapshot import to_json

#: seconds for which the JSON is reused
CACHE_TIME: Final = 1.0
_HTML: Final = (Path(__file__).parent / "page.html").read_bytes()
#: docs/runbook.md, made by `python -m docs --write`
_RUNBOOK: Final = (Path(__file__).parent / "runbook.html").read_bytes()


def _hash(page: bytes, element: bytes) -> str:
    """Return the source of the only style or script of a page, for a content security policy."""
    (text,) = re.findall(b"<%b>(.*?)</%b>" % (element, element), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


_STYLES: Final = f"{_hash(_HTML, b'style')} {_hash(_RUNBOOK, b'style')}"
#: what the pages may do: run their script, use their styles and icon, and ask this daemon
PAGE_POLICY: Final = f"script-src {_hash(_HTML, b'script')}; style-src {_STYLES}; img-src data:; connect-src 'self'"


class StatusPage:
    """The page about a daemon and its fleet. All URLs in it are relative, so that it works below any path prefix."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        self.collector = StatusCollector(daemon)
        self._status: Answer | None = None
        self._expires = 0.0

    def pages(self) -> dict[str, Page]:
        """Return the pages by path."""
        html: Answer = 200, "text/html; charset=utf-8", _HTML
        runbook: Answer = 200, "text/html; charset=utf-8", _RUNBOOK
        return {
            "/": lambda _accept: html,
            "/fleet": lambda _accept: html,
            "/runbook": lambda _accept: runbook,
            "/status.json": self._show_status,
            "/fleet.json": FleetPage(self._daemon, write_fleet),
            "/fleet-table.json": FleetPage(self._daemon, write_table),
        }

    def _show_status(self, _accept: str) -> Answer:
        now = self._daemon.now()
        if self._status is None or now >= self._expires:
            text = to_json(self.collector.collect())
            self._status, self._expires = (200, "application/json", f"{text}\n".encode("ascii")), now + CACHE_TIME
        return self._status
