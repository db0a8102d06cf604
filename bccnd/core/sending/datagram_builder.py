"""Builds datagrams from local messages: identity, seq and signature.

Invariant: each identity has one counter, which starts at the clock in microseconds, so that receivers never take a
restart of a program or daemon for old seqs, and no number is used twice, even if the clock was set back before a crash:
numbers are reserved before they are used. No datagram exceeds the protocol's ceiling. Source: BCCN, SEQUENCE NUMBERS
AND DEDUP and "Working datagram size limit".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from bccnd.core.tracking.dedup import RELEASE_DELAY, TrackerTable
from bccnd.core.tracking.local_identities import LocalIdentity
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import bccn1, frames
from bccnd.core.wire.frames import KEY
from bccnd.core.wire.identity_format import PERL_TOKEN_BYTES
from bccnd.errors import BadDatagram, BadMessage
from bccnd.native.buffers.datagram import build

_MAX_SEQ: Final = (1 << 64) - 1
#: bytes that the Perl module accepts in a channel; the signs of the other forms are no part of one
_PERL_BYTES: Final = PERL_TOKEN_BYTES + b"/?"
#: numbers reserved at once
RESERVED: Final = 1_000_000
#: identities released since the last `DatagramBuilder.take_ended`
_MAX_ENDED: Final = 1024


class DatagramBuilder:
    """Gives local messages their src, seq and sum; ``seq`` is that of the last message. ``perl_safe`` refuses plain
    channels that the Perl module would discard."""

    def __init__(
        self,
        checker: IntegrityChecker,
        sources: TrackerTable,
        *,
        ceiling: int = bccn1.MAX_SEND,
        perl_safe: bool = False,
        first_seq: int = 0,
        reserve: Callable[[int], None] | None = None,
    ) -> None:
        """Begin numbers at the clock, or at ``first_seq`` if that is higher; ``reserve`` is called before numbers are
        used, with one above them, once for `RESERVED` of them."""
        self.checker = checker
        self.seq = 0
        self._sources = sources
        self._ceiling = ceiling
        self._perl_safe = perl_safe
        self._first_seq = first_seq
        self._reserve = reserve
        #: the number from which on further ones are to be reserved
        self._reserved = 0 if reserve is not None else _MAX_SEQ
        #: identities that have clients
        self._open: dict[bytes, LocalIdentity] = {}
        self._ended: deque[tuple[bytes, int, int]] = deque(maxlen=0)

    def open(self, identity: bytes) -> None:
        """Register a client under an identity."""
        own = self._open.get(identity)
        if own is None:
            own = self._open[identity] = self._sources.claim(identity)
        own.users += 1

    def close(self, identity: bytes, now: float) -> None:
        """Unregister a client; the last one releases the identity."""
        own = self._open[identity]
        own.users -= 1
        if not own.users:
            del self._open[identity]
            if own.has_sent():
                self._ended.append((identity, own.run, own.next))
            self._sources.local.release(identity, now + RELEASE_DELAY)

    def runs(self) -> list[tuple[bytes, int, int]]:
        """Return the open identities that have sent, with the first seq of their run and the next one."""
        runs = []
        for identity, own in self._open.items():
            if own.has_sent():
                runs.append((identity, own.run, own.next))
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
        full = self._build(identity, _MAX_SEQ, frames.message(chan, b""))
        # The length of a full body has four digits.
        return self._ceiling - len(full) - 4

    def build(self, identity: bytes, frame: bytes, clock_us: int, checked: bool = False) -> bytes:
        """Return the datagram of a message, which is a frame; ``clock_us`` is the wall clock in microseconds,
        ``checked`` whether the channel is known to be legal.

        Raises BadMessage: bad_channel, bad_target, not_perl_safe, no_signing_key, too_long; then no seq is used.
        """
        if self._perl_safe or not checked:
            self._check(frame[KEY : frame.index(0)], checked)
        # A body beyond the ceiling needs no sum; the shortest seq has one digit.
        if len(identity) + 3 + len(frame) - KEY > self._ceiling:
            raise BadMessage("too_long", f"more than {self._ceiling} bytes as a datagram")
        own = self._open[identity]
        seq = own.next_seq(clock_us if clock_us > self._first_seq else self._first_seq)
        datagram = self._build(identity, seq, frame)
        if len(datagram) > self._ceiling:
            raise BadMessage("too_long", f"more than {self._ceiling} bytes as a datagram")
        own.use(seq, seq + 1)
        if seq >= self._reserved:
            self._reserve_from(seq)
        self.seq = seq
        return datagram

    def _build(self, identity: bytes, seq: int, frame: bytes) -> bytes:
        signer = self.checker.signer
        datagram: bytes = build(identity, seq, frame) if signer is None else signer.build(identity, seq, frame)
        return datagram

    def _check(self, chan: bytes, checked: bool) -> None:
        """Check a channel. Raises BadMessage: bad_channel, bad_target, not_perl_safe."""
        if not checked:
            try:
                bccn1.check_chan(chan)
            except BadDatagram as bad:
                raise BadMessage(bad.reason, bad.detail) from None
        if self._perl_safe and chan.translate(None, _PERL_BYTES) and not chan.startswith(b"!"):
            raise BadMessage("not_perl_safe", "the Perl module discards this channel")

    def _reserve_from(self, seq: int) -> None:
        self._reserved = min(seq + RESERVED, _MAX_SEQ)
        if self._reserve is not None:
            self._reserve(self._reserved)
