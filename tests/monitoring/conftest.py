"""Buses that these tests turn."""

from tests.hubs import busy, observed

__all__ = ["busy", "observed"]
