"""Buses that these tests turn."""

from tests.hubs import loop

__all__ = ["loop"]
