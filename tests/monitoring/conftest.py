"""Buses that these tests turn."""

from tests.hubs import busy, loop, observed, small, town

__all__ = ["busy", "loop", "observed", "small", "town"]
