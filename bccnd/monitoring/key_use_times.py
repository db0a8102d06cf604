"""Notes when each key last verified a datagram, from counts that are read now and then.

Reading counts instead of clocks costs the datagrams nothing; a time is late by as much as two readings are apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from bccnd.core.trust.integrity_algorithms import KeyUse


class KeyUseTimes:
    """Times (monotonic) of the last use, by fingerprint."""

    def __init__(self) -> None:
        #: the count at the last reading, and when it was first seen, None before the first use
        self._seen: dict[str, tuple[int, float | None]] = {}

    def read(self, keys: Iterable[KeyUse], now: float) -> None:
        """Read the counts of all keys; those that are not among them are forgotten."""
        before = self._seen
        self._seen = {}
        for key in keys:
            count, used = before.get(key.fingerprint, (0, None))
            self._seen[key.fingerprint] = key.verified, now if key.verified != count else used

    def seconds_since(self, fingerprint: str, now: float) -> float | None:
        """Return how long ago a key was last used; None if it never was."""
        _, used = self._seen.get(fingerprint, (0, None))
        return None if used is None else now - used
