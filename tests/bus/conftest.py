"""Buses that these tests turn."""

from tests.hubs import town

__all__ = ["town"]
