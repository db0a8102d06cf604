"""The way out: a local message -> a datagram.

Law: one counter per identity, starting at the clock in microseconds, so that a restart of a program or of the
daemon is never taken for staleness; nothing longer than the protocol's ceiling leaves. Source: BCCN, SEQUENCE
NUMBERS AND DEDUP and "Working datagram size limit".
"""

from __future__ import annotations

from typing import Final

from bccnd.core import bccn1
from bccnd.core.dedup import Sources
from bccnd.core.integrity import Door
from bccnd.errors import BadDatagram, BadMessage

#: seconds for which the broadcasts of a client that has left are still known as ours
LINGER: Final = 10.0


class Egress:
    """Gives local messages their sender, seq and check."""

    def __init__(self, door: Door, sources: Sources, *, ceiling: int = bccn1.MAX_SEND) -> None:
        self.door = door
        self._sources = sources
        self._ceiling = ceiling
        self._users: dict[bytes, int] = {}
        self._next: dict[bytes, int] = {}

    def open(self, identity: bytes) -> None:
        """One more client speaks under this identity."""
        users = self._users.get(identity, 0)
        if not users:
            self._sources.claim(identity)
        self._users[identity] = users + 1

    def close(self, identity: bytes, now: float) -> None:
        """One client less; the last one takes the counter with it."""
        self._users[identity] -= 1
        if not self._users[identity]:
            del self._users[identity]
            self._next.pop(identity, None)
            self._sources.release(identity, now + LINGER)

    def emit(self, identity: bytes, chan: bytes, payload: bytes, clock_us: int) -> tuple[int, bytes]:
        """The seq and the datagram for a message; ``clock_us`` is the wall clock in microseconds.

        Raises BadMessage: bad_channel, bad_target, too_long. A message that is refused uses up no seq.
        """
        try:
            bccn1.check_chan(chan)
        except BadDatagram as bad:
            raise BadMessage(bad.reason, bad.detail) from None
        seq = self._next.get(identity, clock_us)
        body = bccn1.build_body(identity, seq, chan, payload)
        # A body beyond the ceiling is not worth a sum.
        datagram = bccn1.build(body, self.door.seal(body)) if len(body) <= self._ceiling else body
        if len(datagram) > self._ceiling:
            raise BadMessage("too_long", f"more than {self._ceiling} bytes as a datagram")
        self._next[identity] = seq + 1
        return seq, datagram
