"""The status page, for who is paged at night: what is lost, where, since when, and what to do.

Law: looking changes nothing and holds nothing up: a page is made once for all who ask within a second, and what there
is to remember is remembered whether anybody looks or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from bccnd.core.liveness import Change
from bccnd.monitoring.page_data import Facts, plain
from bccnd.monitoring.page_gather import Gatherer, Shown
from bccnd.monitoring.page_render import render
from bccnd.net.http import Page

#: seconds for which a page that was made is good for others
FRESH: Final = 1.0
_HERE: Final = Path(__file__).parent


class StatusPage:
    """The pages on which people see the daemon."""

    def __init__(self, daemon: Shown) -> None:
        self._now = daemon.now
        self._gatherer = Gatherer(daemon)
        self._facts: Facts | None = None
        self._made: dict[Callable[[Facts], str], bytes] = {}
        self._until = 0.0

    def begin(self) -> None:
        """The daemon begins to serve."""
        self._gatherer.begin()

    def sample(self) -> None:
        """To be called every `history.STEP` seconds."""
        self._gatherer.sample()

    def hear(self, changes: Iterable[Change]) -> None:
        """Sources have come alive, fallen silent or died."""
        self._gatherer.hear(changes)

    def pages(self) -> dict[str, Page]:
        """By path; every address in them is relative to that of the page."""
        return {
            "/": self._page("text/html; charset=utf-8", render),
            "/status.json": self._page("application/json", _as_json),
            "/status.css": _file("text/css; charset=utf-8", "status.css"),
            "/status.js": _file("text/javascript; charset=utf-8", "status.js"),
            "/status.svg": _file("image/svg+xml", "status.svg"),
        }

    def _page(self, kind: str, make: Callable[[Facts], str]) -> Page:
        def page(_accept: str) -> tuple[int, str, bytes]:
            now = self._now()
            if self._facts is None or now >= self._until:
                self._facts, self._made, self._until = self._gatherer.facts(), {}, now + FRESH
            if make not in self._made:
                self._made[make] = make(self._facts).encode()
            return 200, kind, self._made[make]

        return page


def _as_json(facts: Facts) -> str:
    return json.dumps(plain(facts), separators=(",", ":")) + "\n"


def _file(kind: str, name: str) -> Page:
    body = (_HERE / name).read_bytes()
    return lambda _accept: (200, kind, body)
