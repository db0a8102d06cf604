"""Keeps the identities of this host's programs, also for a while after their end: datagrams under them are its own.

Invariant: the table has a cap, and evictions are counted.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from bccnd.core.observing.counters import NamedCounts

#: local identities that were released, whose last broadcasts may still arrive
MAX_RELEASED: Final = 65_536


class LocalIdentity:
    """An identity of this host, and the counter of its seqs.

    Seqs from ``first`` up to ``next`` were used under it. It has ``users`` clients. ``started`` is set once these have
    a seq; ``run`` is the first seq that they used. It expires at ``until``; ``reported`` is set once another sender was
    found to use it.
    """

    __slots__ = ("first", "next", "reported", "run", "started", "until", "users")

    def __init__(self) -> None:
        self.first = self.next = self.run = 0
        self.users = 0
        self.started = False
        self.until = float("inf")
        self.reported = False

    def next_seq(self, clock_us: int) -> int:
        """Return the next seq."""
        # The clock may have been set back since the identity was last used.
        return self.next if self.started else max(self.next, clock_us)

    def use(self, seq: int, following: int) -> None:
        """Use the seqs from ``seq`` up to ``following``, which is the next one."""
        if not self.started:
            self.started = True
            self.run = seq
            if not self.next:
                self.first = seq
        self.next = following

    def has_sent(self) -> bool:
        """Whether its clients have used a seq."""
        return self.started and self.next > self.run


class LocalIdentities:
    """Local identities by src. ``counted`` counts ``conflicts``, datagrams under a local identity that this host has
    not sent, and ``own_evicted``, identities removed before they expired."""

    def __init__(self, counted: NamedCounts) -> None:
        self._by_src: dict[bytes, LocalIdentity] = {}
        self._released: deque[tuple[float, bytes]] = deque()
        self._counted = counted

    def resume(self, src: bytes, first: int, following: int, run: int, started: bool, until: float) -> None:
        """Continue with an identity of the daemon before, also with one that has clients again. Without clients its
        last broadcasts may arrive until a time."""
        own = self._by_src.setdefault(src, LocalIdentity())
        own.first, own.next, own.run = first, following, run
        own.started = started and own.users > 0
        if not own.users:
            self.release(src, until)

    def items(self) -> list[tuple[bytes, LocalIdentity]]:
        """Return all identities, those in use and those released."""
        return list(self._by_src.items())

    def has(self, src: bytes) -> bool:
        return src in self._by_src

    def claim(self, src: bytes) -> LocalIdentity:
        """Make ``src`` a local identity whose clients have no seq yet."""
        own = self._by_src.setdefault(src, LocalIdentity())
        own.until = float("inf")
        own.started = False
        return own

    def release(self, src: bytes, until: float) -> None:
        """Release a local identity, whose last broadcasts may still arrive until a time."""
        own = self._by_src.get(src)
        if own is not None:
            own.until = until
            self._released.append((until, src))
            if len(self._released) > MAX_RELEASED:
                self._counted.add("own_evicted")
                self._expire()

    def _expire(self) -> None:
        until, src = self._released.popleft()
        own = self._by_src.get(src)
        if own is not None and own.until == until:
            del self._by_src[src]

    def sweep(self, now: float) -> bool:
        """Remove one identity that has expired; False if there is none."""
        due = bool(self._released) and self._released[0][0] <= now
        if due:
            self._expire()
        return due

    def check_conflict(self, src: bytes, seq: int) -> bool:
        """Count a LOOPED datagram with a seq that this host never used: another sender uses the identity.

        True the first time for an identity.
        """
        own = self._by_src[src]
        if own.first <= seq < own.next:
            return False
        self._counted.add("conflicts")
        first_time, own.reported = not own.reported, True
        return first_time
