"""The identities of this host's programs, and for a while those that they had: datagrams under them are its own.

Invariant: the table has a cap, and evictions are counted. Identities are records in the memory that may outlive the
process.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from bccnd.core.observing.counters import NamedCounts
from bccnd.core.tracking.record_table import RecordTable
from bccnd.core.wire.bccn1 import MAX_SEQ
from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.slots import SlotMemory

#: local identities that were released, whose last broadcasts may still arrive
MAX_RELEASED: Final = 65_536
#: seqs that may have been used beyond those known, under an identity that the daemon before had in use. Seqs follow
#: the wall clock, but are ahead of it where that was set back; a seq that is used twice loses a message.
SPARE: Final = 1 << 20


class LocalIdentity:
    """Seqs used under an identity of this host: from ``first`` up to ``next``. It expires at ``until``; ``reported``
    is set once another sender was found to use it."""

    __slots__ = ("first", "next", "reported", "until")

    def __init__(self) -> None:
        self.first = self.next = 0
        self.until = float("inf")
        self.reported = False


class LocalIdentities:
    """Local identities by src. ``counted`` counts ``conflicts``, datagrams under a local identity that this host has
    not sent, and ``own_evicted``, identities removed before they expired."""

    def __init__(self, memory: SlotMemory, counted: NamedCounts) -> None:
        self._by_src: dict[bytes, LocalIdentity] = {}
        self._kept = RecordTable(memory, layout.IDENTITY, "=dQQ")
        self._released: deque[tuple[float, bytes]] = deque()
        self._counted = counted

    def load(self, until: float, clock_us: int) -> None:
        """Continue with what the memory has from the daemon before, ``until`` some time, since broadcasts wait in the
        sockets meanwhile.

        Of those that were in use the last seq is not known: it is taken to be below ``clock_us`` (wall clock in
        microseconds), or the last known one, plus `SPARE`.
        """
        for src, (ends, first, following) in list(self._kept.load()):
            if ends == float("inf"):
                following = max(following, clock_us) + SPARE
            own = self._by_src[src] = LocalIdentity()
            own.first, own.next = first, following
            self.release(src, until)

    def has(self, src: bytes) -> bool:
        return src in self._by_src

    def get(self, src: bytes) -> LocalIdentity | None:
        return self._by_src.get(src)

    def all(self) -> list[bytes]:
        return list(self._by_src)

    def claim(self, src: bytes) -> LocalIdentity:
        """Make ``src`` a local identity."""
        own = self._by_src.setdefault(src, LocalIdentity())
        own.until = float("inf")
        self._keep(src, own)
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
            self._keep(src, own)

    def _keep(self, src: bytes, own: LocalIdentity) -> None:
        self._kept.put(src, own.until, own.first, min(own.next, MAX_SEQ))

    def _expire(self) -> None:
        until, src = self._released.popleft()
        own = self._by_src.get(src)
        if own is not None and own.until == until:
            del self._by_src[src]
            self._kept.drop(src)

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
