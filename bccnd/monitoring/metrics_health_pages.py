"""Serves the pages for programs: the metrics, and whether the daemon is alive."""

from __future__ import annotations

from bccnd.monitoring import metrics
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.net.http import Page


def pages(daemon: DaemonState) -> dict[str, Page]:
    """Return the pages by path; those for people are in `status_page`."""
    return {
        "/metrics": metrics.page(daemon),
        "/healthz": lambda _accept: (200, "text/plain; charset=utf-8", b"ok\n"),
    }
