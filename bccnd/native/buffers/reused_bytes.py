"""Bytes that reuse memory to which nothing else refers any more, in place of an allocation for each message."""

from __future__ import annotations


class ReusedBytes:
    """Makes bytes, one message after the other. A result that is still in use keeps its content: the next one then is
    a new object."""

    def join(self, head: bytes, raw: bytes, start: int) -> bytes:
        """Return ``head + raw[start:]``. Raises IndexError for a start outside ``raw``."""
        if not 0 <= start <= len(raw):
            raise IndexError("outside the bytes")
        return head + raw[start:]
