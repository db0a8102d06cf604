"""Builds datagrams from local messages: identity, seq and signature.

Invariant: each identity has one counter, which starts at the clock in microseconds, so that receivers never take a
restart of a program or daemon for old seqs; no datagram exceeds the protocol's ceiling. Source: BCCN, SEQUENCE NUMBERS
AND DEDUP and "Working datagram size limit".
"""

from __future__ import annotations

from collections import deque
from typing import Final

from bccnd.core.tracking.dedup import RELEASE_DELAY, TrackerTable
from bccnd.core.tracking.local_identities import LocalIdentity
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import bccn1
from bccnd.core.wire.identity_format import PERL_TOKEN_BYTES
from bccnd.errors import BadDatagram, BadMessage

_MAX_SEQ: Final = (1 << 64) - 1
#: bytes that the Perl module accepts in a channel; the signs of the other forms are no part of one
_PERL_BYTES: Final = PERL_TOKEN_BYTES + b"/?"


#: identities released since the last `Egress.take_ended`
_MAX_ENDED: Final = 1024


class _SeqCounter:
    """The seqs of an identity in use: its number of clients, whether it has a seq yet, those used, and the first of
    those used without a break, ``run``."""

    __slots__ = ("own", "run", "started", "users")

    def __init__(self, own: LocalIdentity) -> None:
        self.users = 1
        self.started = False
        self.run = 0
        self.own = own

    def next(self, clock_us: int) -> int:
        """Return the next seq."""
        # The clock may have been set back since the identity was last used.
        return self.own.next if self.started else max(self.own.next, clock_us)

    def advance(self, seq: int, first: int | None = None) -> None:
        """Use ``seq`` next; ``first`` is the first one used, if there was none before."""
        if not self.started:
            self.started = True
            self.run = seq if first is None else first
            if not self.own.next:
                self.own.first = self.run
        self.own.next = seq


class Egress:
    """Gives local messages their src, seq and sum. ``perl_safe`` refuses plain channels that the Perl module would
    discard."""

    def __init__(
        self,
        checker: IntegrityChecker,
        sources: TrackerTable,
        *,
        ceiling: int = bccn1.MAX_SEND,
        perl_safe: bool = False,
    ) -> None:
        self.checker = checker
        self._sources = sources
        self._ceiling = ceiling
        self._perl_safe = perl_safe
        self._counters: dict[bytes, _SeqCounter] = {}
        self._ended: deque[tuple[bytes, int, int]] = deque(maxlen=0)

    def open(self, identity: bytes) -> None:
        """Register a client under an identity."""
        counter = self._counters.get(identity)
        if counter is None:
            self._counters[identity] = _SeqCounter(self._sources.claim(identity))
        else:
            counter.users += 1

    def close(self, identity: bytes, now: float) -> None:
        """Unregister a client; the last one releases the identity."""
        counter = self._counters[identity]
        counter.users -= 1
        if not counter.users:
            del self._counters[identity]
            if counter.started and counter.own.next > counter.run:
                self._ended.append((identity, counter.run, counter.own.next))
            self._sources.local.release(identity, now + RELEASE_DELAY)

    def next_seq(self, identity: bytes) -> int:
        """Return the next seq of an identity; 0 if none was used, or it has no clients."""
        counter = self._counters.get(identity)
        return counter.own.next if counter is not None and counter.started else 0

    def fix_seq(self, identity: bytes, clock_us: int) -> int:
        """Return the next seq of an open identity, choosing it now if there was none."""
        counter = self._counters[identity]
        seq = counter.next(clock_us)
        counter.advance(seq)
        return seq

    def resume(self, identity: bytes, seq: int) -> None:
        """Continue at ``seq`` or above under an open identity that the daemon before used."""
        counter = self._counters[identity]
        if seq:
            # The daemon before used all seqs below it.
            counter.own.first = 0
            counter.own.next = max(counter.own.next, seq) if counter.started else seq
            if not counter.started:
                counter.run = seq
            counter.started = True

    def runs(self) -> list[tuple[bytes, int, int]]:
        """Return the open identities that have sent, with the first seq of their run and the next one."""
        runs = []
        for identity, counter in self._counters.items():
            if counter.started and counter.own.next > counter.run:
                runs.append((identity, counter.run, counter.own.next))
        return runs

    def keep_ended(self, keep: bool) -> None:
        """Remember for `take_ended` which identities are released, or no longer; at first they are not."""
        self._ended = deque(self._ended, _MAX_ENDED if keep else 0)

    def take_ended(self) -> list[tuple[bytes, int, int]]:
        """Return the same of the identities that were released since the last call."""
        ended = list(self._ended)
        self._ended.clear()
        return ended

    def room(self, identity: bytes, chan: bytes) -> int:
        """Return the bytes of payload that fit in a datagram of an identity. Raises BadMessage: no_signing_key."""
        body = bccn1.build_body(identity, _MAX_SEQ, chan, b"")
        # The length of a full body has four digits.
        return self._ceiling - len(bccn1.build(body, self.checker.sign(body))) - 4

    def emit(
        self, identity: bytes, chan: bytes, payload: bytes, clock_us: int, checked: bool = False
    ) -> tuple[int, bytes]:
        """Return the seq and datagram of a message; ``clock_us`` is the wall clock in microseconds, ``checked`` whether
        the channel is known to be legal.

        Raises BadMessage: bad_channel, bad_target, not_perl_safe, no_signing_key, too_long; then no seq is used.
        """
        if not checked:
            try:
                bccn1.check_chan(chan)
            except BadDatagram as bad:
                raise BadMessage(bad.reason, bad.detail) from None
        if self._perl_safe and chan.translate(None, _PERL_BYTES) and not chan.startswith(b"!"):
            raise BadMessage("not_perl_safe", "the Perl module discards this channel")
        counter = self._counters[identity]
        seq = counter.next(clock_us)
        body = bccn1.build_body(identity, seq, chan, payload)
        # A body beyond the ceiling needs no sum.
        datagram = bccn1.build(body, self.checker.sign(body)) if len(body) <= self._ceiling else body
        if len(datagram) > self._ceiling:
            raise BadMessage("too_long", f"more than {self._ceiling} bytes as a datagram")
        counter.advance(seq + 1, seq)
        return seq, datagram
