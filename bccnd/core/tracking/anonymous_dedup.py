"""Deduplication of datagrams from anonymous senders (src ``?``).

Invariant: memory is bounded by time and number; evictions before the time are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from bccnd.core.observing.counters import NamedCounts
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE

#: datagrams per generation, 150 bytes each
MAX_ANONYMOUS: Final = 16_384


class AnonymousDedup:
    """Judges by content, since seqs mean nothing here: an identical datagram from the same address within the horizon
    is a duplicate. Keeps two generations, swapped when the older one has expired or the younger one is full."""

    def __init__(self, limits: TrackerLimits, cap: int = MAX_ANONYMOUS) -> None:
        self._limits = limits
        #: evicted before they expired
        self.counted = NamedCounts(("evicted",))
        self._cap = cap
        self._young: dict[bytes, float] = {}
        self._old: dict[bytes, float] = {}
        self._since = 0.0

    def accepted(self) -> list[tuple[bytes, float]]:
        """Return the accepted datagrams, as keys with their times, the oldest first."""
        return [*self._old.items(), *self._young.items()]

    def resume(self, accepted: Iterable[tuple[bytes, float]]) -> None:
        """Continue with the datagrams that the daemon before has accepted."""
        for key, when in accepted:
            if self._is_due(when):
                self._swap(when)
            self._young[key] = when

    def judge(self, peer: str, body: bytes, now: float) -> int:
        """Return ACCEPTED or DUPLICATE by the sender's address and the whole body (seq, chan and payload)."""
        if self._is_due(now):
            self.counted.add("evicted", sum(1 for when in self._old.values() if now - when <= self._limits.horizon))
            self._swap(now)
        key = self._key(peer, body)
        verdict = self._look_up(key, now)
        if verdict == ACCEPTED:
            self._young[key] = now
        return verdict

    def _swap(self, now: float) -> None:
        self._young, self._old, self._since = {}, self._young, max(now, self._since)

    def predict(self, peer: str, body: bytes, now: float) -> int:
        """Return the verdict that `judge` would give; changes nothing."""
        key = self._key(peer, body)
        if self._is_due(now):  # the older generation would be dropped
            when = self._young.get(key)
            return DUPLICATE if when is not None and now - when <= self._limits.horizon else ACCEPTED
        return self._look_up(key, now)

    def _is_due(self, now: float) -> bool:
        """Whether the generations are to be swapped."""
        return len(self._young) >= self._cap or now - self._since > self._limits.horizon

    @staticmethod
    def _key(peer: str, body: bytes) -> bytes:
        return blake2b(body, digest_size=16, key=peer.encode("ascii", "replace")[:64]).digest()

    def _look_up(self, key: bytes, now: float) -> int:
        when = self._young.get(key)
        if when is None:
            when = self._old.get(key)
        return DUPLICATE if when is not None and now - when <= self._limits.horizon else ACCEPTED
