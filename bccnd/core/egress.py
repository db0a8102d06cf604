"""The way out: a local message -> a datagram.

Law: one counter per identity, starting at the clock in microseconds, so that a restart of a program or of the
daemon is never taken for staleness; nothing longer than the protocol's ceiling leaves. Source: BCCN, SEQUENCE
NUMBERS AND DEDUP and "Working datagram size limit".
"""

from __future__ import annotations

from typing import Final

from bccnd.core import bccn1
from bccnd.core.dedup import LINK_PATIENCE, LocalIdentity, TrackerTable
from bccnd.core.identity import PERL_TOKEN_BYTES
from bccnd.core.integrity import IntegrityChecker
from bccnd.errors import BadDatagram, BadMessage

#: seconds for which the broadcasts of a client that has left are still known as ours; links may bring them late
LINGER: Final = LINK_PATIENCE


#: what the Perl module takes in a channel; the signs of the other forms are no part of one
_PERL_BYTES: Final = PERL_TOKEN_BYTES + b"/?"


class _Speaker:
    """An identity in use: how many clients speak under it, whether it has a seq yet, and what was given so far."""

    __slots__ = ("begun", "own", "users")

    def __init__(self, own: LocalIdentity) -> None:
        self.users = 1
        self.begun = False
        self.own = own

    def next(self, clock_us: int) -> int:
        """The seq to give next."""
        # A clock that was set back while nobody spoke under this name must not lead back either.
        return self.own.next if self.begun else max(self.own.next, clock_us)

    def go_on(self, seq: int, first: int | None = None) -> None:
        """Give this one next; ``first`` is the first that was given, if none was before."""
        if not self.begun:
            self.begun = True
            if not self.own.next:
                self.own.first = seq if first is None else first
        self.own.next = seq


class Egress:
    """Gives local messages their sender, seq and check. ``perl_safe`` refuses plain channels that the Perl module
    would discard."""

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
        self._speakers: dict[bytes, _Speaker] = {}

    def open(self, identity: bytes) -> None:
        """One more client speaks under this identity."""
        speaker = self._speakers.get(identity)
        if speaker is None:
            self._speakers[identity] = _Speaker(self._sources.claim(identity))
        else:
            speaker.users += 1

    def close(self, identity: bytes, now: float) -> None:
        """One client less; the last one takes the counter with it."""
        speaker = self._speakers[identity]
        speaker.users -= 1
        if not speaker.users:
            del self._speakers[identity]
            self._sources.release(identity, now + LINGER)

    def next_seq(self, identity: bytes) -> int:
        """The seq that is given next under an identity; 0 where none was given, or nobody speaks under it."""
        speaker = self._speakers.get(identity)
        return speaker.own.next if speaker is not None and speaker.begun else 0

    def begin(self, identity: bytes, clock_us: int) -> int:
        """The seq that is given next under an open identity, decided now if it was not before."""
        speaker = self._speakers[identity]
        seq = speaker.next(clock_us)
        speaker.go_on(seq)
        return seq

    def resume(self, identity: bytes, seq: int) -> None:
        """Go on with this seq, at least, under an open identity that was in use before we were."""
        speaker = self._speakers[identity]
        if seq:
            # All that comes in below it was given by the daemon before us.
            speaker.own.first = 0
            speaker.own.next = max(speaker.own.next, seq) if speaker.begun else seq
            speaker.begun = True

    def emit(self, identity: bytes, chan: bytes, payload: bytes, clock_us: int) -> tuple[int, bytes]:
        """The seq and the datagram for a message of an open identity; ``clock_us`` is the wall clock in microseconds.

        Raises BadMessage: bad_channel, bad_target, not_perl_safe, no_signing_key, too_long. A message that is refused
        uses up no seq.
        """
        try:
            bccn1.check_chan(chan)
        except BadDatagram as bad:
            raise BadMessage(bad.reason, bad.detail) from None
        if self._perl_safe and chan.translate(None, _PERL_BYTES) and not chan.startswith(b"!"):
            raise BadMessage("not_perl_safe", "the Perl module would discard this channel")
        speaker = self._speakers[identity]
        seq = speaker.next(clock_us)
        body = bccn1.build_body(identity, seq, chan, payload)
        # A body beyond the ceiling is not worth a sum.
        datagram = bccn1.build(body, self.checker.sign(body)) if len(body) <= self._ceiling else body
        if len(datagram) > self._ceiling:
            raise BadMessage("too_long", f"more than {self._ceiling} bytes as a datagram")
        speaker.go_on(seq + 1, seq)
        return seq, datagram
