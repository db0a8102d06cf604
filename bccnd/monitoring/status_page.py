"""Serves the pages for people, one static file, and the JSON that it shows.

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


def _hash(element: bytes) -> str:
    """Return the source of the page's only style or script, for a content security policy."""
    (text,) = re.findall(b"<%b>(.*?)</%b>" % (element, element), _HTML, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


#: what the page may do: run its script, use its style and icon, and ask this daemon
PAGE_POLICY: Final = f"script-src {_hash(b'script')}; style-src {_hash(b'style')}; img-src data:; connect-src 'self'"


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
        return {
            "/": lambda _accept: html,
            "/fleet": lambda _accept: html,
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
