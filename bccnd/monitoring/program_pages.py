"""Serves the pages for programs: the metrics, and whether the daemon is alive."""

from __future__ import annotations

from functools import cache

from bccnd.monitoring.daemon_state import DaemonState
from bccnd.net.http import Page


def pages(daemon: DaemonState) -> dict[str, Page]:
    """Return the pages by path; those for people are in `status_page`."""

    @cache
    def metrics_page() -> Page:
        # Not loaded before: the start of a daemon does not wait for the library.
        from bccnd.monitoring import metrics

        return metrics.page(daemon)

    return {
        "/metrics": lambda accept: metrics_page()(accept),
        "/healthz": lambda _accept: (200, "text/plain; charset=utf-8", b"ok\n"),
    }
