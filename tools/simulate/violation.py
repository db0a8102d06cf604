"""What a broken invariant raises."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant does not hold."""
