"""What goes over a link and what does not, and what became of what was given to it.

Law: pure: bytes, counts and the time come in as arguments. A filter looks at the channel and verifies nothing; what it
cannot read is dropped only where there is something to filter by, as verdicts are the daemon's. Of what a library drops
without a word no more is counted than must have been dropped, and all of it once the connection has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from bccnd.core.bccn1 import MAX_CHAN
from bccnd.core.patterns import DIALECTS, EXACT, Pattern, compile_pattern, covers

_PATH: Final = DIALECTS["path"]
#: bytes within which the envelope of a datagram ends: a magic, a length and a signature take half of it
_ENVELOPE: Final = 320
#: bytes of the three fields behind it, with what is between them
_HEAD: Final = 128 + 20 + MAX_CHAN + 3
#: channels whose answer is remembered; a stranger can make up any number of them
MAX_KNOWN: Final = 4096
#: seconds between two looks from which on we have stood still
PAUSE: Final = 1.25
#: how messages to all, and to somebody, begin
_FORMS: Final = b"!"


def channel(datagram: bytes) -> bytes:
    """The channel that a datagram names, of whatever version; empty where none can be found."""
    body = datagram.find(b"]", 0, _ENVELOPE) + 1
    if not body:
        return b""
    end = datagram.find(b"|", body, body + _HEAD)
    fields = datagram[body:end].split(b":") if end >= 0 else ()
    return fields[2] if len(fields) == 3 else b""


def nameless(datagram: bytes) -> bool:
    """Whether its sender has no name."""
    return datagram.startswith(b"?:", datagram.find(b"]", 0, _ENVELOPE) + 1)


class Filter:
    """What may pass in one direction: channels by ``patterns``, of which the empty one passes all of them, and senders
    without a name if ``nameless``. Messages to all and to somebody (``!``, ``!host/...``) pass by ``!`` alone."""

    def __init__(self, patterns: Iterable[str], *, nameless: bool) -> None:
        texts = [text.encode() for text in patterns]
        self._all = b"" in texts
        self._forms = self._all or _FORMS in texts
        self._patterns = [compile_pattern(text, _PATH) for text in texts if text not in (b"", _FORMS)]
        self._nameless = nameless
        self._known: dict[bytes, bool] = {}

    def refuses(self, datagram: bytes) -> str:
        """Why a datagram may not pass; empty where it may."""
        if not self._nameless and nameless(datagram):
            return "nameless"
        if self._all:
            return ""
        chan = channel(datagram)
        if not chan:
            return "malformed"
        passes = self._known.get(chan)
        if passes is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            passes = self._known[chan] = self._passes(chan)
        return "" if passes else "filtered"

    def _passes(self, chan: bytes) -> bool:
        if chan.startswith(_FORMS):
            return self._forms
        key = Pattern(tuple((EXACT, token) for token in _PATH.tokens(chan)), rest=False, literal=True)
        return any(covers(pattern, key) for pattern in self._patterns)


class Backlog:
    """How long something has been waiting at least, by looks at how much was given and how much has gone, in order."""

    def __init__(self) -> None:
        #: when it was, and what must have gone for nothing to wait any more that waited then
        self._looks: deque[tuple[float, int]] = deque()

    def look(self, now: float, given: int, gone: int) -> None:
        while self._looks and self._looks[0][1] <= gone:
            self._looks.popleft()
        if given > gone:
            self._looks.append((now, given))

    def clear(self) -> None:
        self._looks.clear()

    def age(self, now: float) -> float:
        """Seconds; 0 where nothing is known to wait."""
        return now - self._looks[0][0] if self._looks else 0.0


class Account:
    """What was handed to one peer, by totals: ``handed`` to NNG, and ``sent`` by it to the kernel. ``room`` messages
    may wait in between, and one is on its way; it drops what is beyond.

    ``dropped`` is what must have been dropped by now. ``behind`` says how long something has waited at least.
    """

    def __init__(self, room: int, handed: int) -> None:
        self._room = room + 1
        self._base = handed
        self.sent = 0
        self.received = 0
        self.dropped = 0
        self._handed = 0
        self._backlog = Backlog()

    def look(self, handed: int, sent: int, received: int, now: float, *, idle: bool) -> None:
        """Take the totals of this moment; ``idle`` if the kernel has nothing in hand, and so NNG has not either."""
        same = handed - self._base == self._handed and sent == self.sent
        self._handed = handed - self._base
        self.sent, self.received = sent, received
        self._must(self._handed - sent - self._room)
        if idle and same:  # nothing was moving, and nothing waits: what is missing was dropped
            self._must(self._handed - sent)
        if idle:
            self._backlog.clear()
        else:
            self._backlog.look(now, sent + min(self._handed - sent - self.dropped, self._room), sent)

    def behind(self, now: float) -> float:
        """Seconds for which something has been waiting; 0 where nothing is known to."""
        return self._backlog.age(now)

    def end(self, handed: int, sent: int, received: int) -> None:
        """The connection has ended with these totals: what was not sent will not be."""
        self._handed, self.sent, self.received = handed - self._base, sent, received
        self._must(self._handed - sent)
        self._backlog.clear()

    def _must(self, dropped: int) -> None:
        self.dropped = max(self.dropped, dropped)


class Still:
    """How long what is found waiting may have waited: since there was last nothing left, or since when so many were
    taken as may wait (``room``).

    Everything in seconds of a clock that goes on while a host sleeps. Up to ``grace`` it counts as having come now. Who
    fills the queue may stand still together with us: for ``doubt`` seconds after a pause, finding nothing says nothing.
    """

    def __init__(self, grace: float, room: int, now: float, *, doubt: float = 0.0) -> None:
        self._grace = grace
        self._room = room
        self._taken = 0
        self._doubt = doubt
        self._doubt_until = self._seen = now
        #: nothing of what is left was there at the first moment; nothing will be that was there at the second, once as
        #: many have been taken as may wait
        self._since = self._mark = now

    def emptied(self, now: float) -> None:
        """There was nothing left just now."""
        self._see(now)
        if now >= self._doubt_until:
            self._since = self._mark = now
            self._taken = 0

    def taken(self, count: int, now: float) -> None:
        """So many were taken, and there may be more."""
        self._see(now)
        self._taken += count
        if self._taken > self._room:
            self._since, self._mark, self._taken = self._mark, now, 0

    def _see(self, now: float) -> None:
        if now - self._seen > PAUSE:
            self._doubt_until = now + self._doubt
        self._seen = now

    def age(self, now: float) -> float:
        """How long ago what is taken now may have come."""
        age = now - self._since
        return age if age > self._grace else 0.0
