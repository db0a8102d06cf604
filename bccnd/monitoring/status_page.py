"""Serves the status page: one page for operators, and the same data as JSON.

Invariant: requests within a second get the same page, so that the cost does not grow with the number of readers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.fleet_page import FleetPage, write_fleet, write_table
from bccnd.monitoring.status_collector import StatusCollector
from bccnd.monitoring.status_html import render
from bccnd.monitoring.status_model import Status, to_json
from bccnd.net.http import Page

#: seconds for which a rendered page is reused
CACHE_TIME: Final = 1.0
_HERE: Final = Path(__file__).parent


class StatusPage:
    """The status page of a daemon, with its stylesheet, script and icon."""

    def __init__(self, daemon: DaemonState) -> None:
        self._now = daemon.now
        self._daemon = daemon
        self.collector = StatusCollector(daemon)
        self._status: Status | None = None
        self._rendered: dict[Callable[[Status], str], bytes] = {}
        self._expires = 0.0

    def pages(self) -> dict[str, Page]:
        """Return the pages by path. All URLs in them are relative."""
        return {
            "/": self._page("text/html; charset=utf-8", render),
            "/status.json": self._page("application/json", _render_json),
            "/fleet.json": FleetPage(self._daemon, write_fleet),
            "/fleet-table.json": FleetPage(self._daemon, write_table),
            "/fleet": _file("text/html; charset=utf-8", "fleet.html"),
            "/fleet.css": _file("text/css; charset=utf-8", "fleet.css"),
            "/fleet.js": _file("text/javascript; charset=utf-8", "fleet.js"),
            "/status.css": _file("text/css; charset=utf-8", "status.css"),
            "/status.js": _file("text/javascript; charset=utf-8", "status.js"),
            "/status.svg": _file("image/svg+xml", "status.svg"),
        }

    def _page(self, kind: str, render_status: Callable[[Status], str]) -> Page:
        def page(_accept: str) -> tuple[int, str, bytes]:
            now = self._now()
            if self._status is None or now >= self._expires:
                self._status, self._rendered, self._expires = self.collector.collect(), {}, now + CACHE_TIME
            if render_status not in self._rendered:
                self._rendered[render_status] = render_status(self._status).encode()
            return 200, kind, self._rendered[render_status]

        return page


def _render_json(status: Status) -> str:
    return json.dumps(to_json(status), separators=(",", ":")) + "\n"


def _file(kind: str, name: str) -> Page:
    body = (_HERE / name).read_bytes()
    return lambda _accept: (200, kind, body)
