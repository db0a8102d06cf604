"""A daemon that must not start."""

from __future__ import annotations

from tests.e2e.harness import PATIENCE, Daemon


def refused(daemon: Daemon) -> str:
    """Start a daemon that must exit with status 2 and a remedy; return its log."""
    process = daemon.spawn()
    assert process.wait(PATIENCE) == 2, daemon.said()
    said = daemon.said()
    assert "remedy" in said
    assert "Traceback" not in said
    return said
