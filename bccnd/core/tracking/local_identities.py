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

    def resume(self, seq: int) -> None:
        """Continue at ``seq`` or above, because the daemon before used the seqs below it."""
        self.first = 0
        self.next = max(self.next, seq) if self.started else seq
        if not self.started:
            self.run = seq
        self.started = True

    def has_sent(self) -> bool:
        """Whether its clients have used a seq."""
        return self.started and self.next > self.run


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
        """Make ``src`` a local identity whose clients have no seq yet."""
        own = self._by_src.setdefault(src, LocalIdentity())
        own.until = float("inf")
        own.started = False
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
