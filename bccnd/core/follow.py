"""One message among all others: which one is meant, and what the trackers know of it.

Law: a datagram is taken for the message by what it claims to be, whether its check holds or not; what is known of a
message that did not come is said, and no more. Nothing is remembered of who was only asked for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from bccnd.core import bccn1
from bccnd.core.bccn1 import UNKNOWN_SRC
from bccnd.core.dedup import Sources
from bccnd.core.roster import Source
from bccnd.errors import BadDatagram

#: states in which there is something to wait for
AWAITED: Final = frozenset(("unknown", "ahead", "missing"))


class Wanted:
    """The message that is meant: of a src, or of one that begins with ``prefix/*``; with a seq, or the next one there
    is. Once it was found, only that one is meant."""

    def __init__(self, src: bytes, seq: int | None = None) -> None:
        """Raises ValueError for what no sender can be called."""
        self.prefix = src[:-1] if src.endswith(b"/*") else None
        self.src = src
        self.seq = seq
        try:
            bccn1.check_src(src.removesuffix(b"/*"))
        except BadDatagram as bad:
            raise ValueError(bad.detail or bad.reason) from None
        if src == UNKNOWN_SRC or (seq is not None and not 0 <= seq <= bccn1.MAX_SEQ):
            raise ValueError("nobody's seq")

    @property
    def found(self) -> bool:
        """Whether it is known exactly which one is meant."""
        return self.prefix is None and self.seq is not None

    def may_be(self, raw: bytes) -> bool:
        """A quick look: False means that this is not it."""
        return (self.prefix or self.src + b":") in raw

    def speaks(self, src: bytes) -> bool:
        """Whether this may be its sender."""
        return src == self.src if self.prefix is None else src.startswith(self.prefix)

    def take(self, src: bytes, seq: int) -> bool:
        """Whether this is the one; from then on it is the only one."""
        if not self.speaks(src) or self.seq not in (None, seq):
            return False
        self.src, self.prefix, self.seq = src, None, seq
        return True


def claims(raw: bytes) -> tuple[bytes, int, bytes, bytes] | None:
    """What a datagram claims to be: src, seq, channel and payload; its check is not looked at."""
    try:
        magic, _, body = bccn1.split_envelope(raw)
        return bccn1.read_body(body) if magic == bccn1.MAGIC else None
    except BadDatagram:
        return None


class Place(NamedTuple):
    """What is known of a seq: a word, and a sentence."""

    state: str
    finding: str


def place(sources: Sources, src: bytes, seq: int, now: float, *, window: int) -> Place:
    """What the trackers know of a message; ``now`` is monotonic, in seconds, ``window`` is `DedupRules.sanity`."""
    own = sources.own(src)
    if own is not None:
        if seq >= own.next:
            last = f"; the last one was {own.next - 1}" if own.next else ""
            return Place("ahead", f"a program of this host is called so, and has not given this seq yet{last}")
        if seq >= own.first:
            return Place("ours", "a program of this host has sent it")
        return Place("unknown", "a program of this host is called so, and it has not given this seq")
    source = sources.get(src)
    if source is None:
        return Place("unknown", "nothing was heard of this sender, or it was forgotten")
    state = _state(source, seq, window)
    ago = f"{now - source.heard:.1f} s ago"
    last = f"the last seq was {source.last}, {ago} (epoch {source.epoch}, which began with {source.first})"
    return Place(state, f"{_WORDS[state]}; {last}")


_WORDS: Final = {
    "ahead": "it has not come yet",
    "heard": "it has come",
    "missing": "it has not come, and others after it have: it may still be on its way",
    "lost": "it has not come, and was given up as lost",
    "before": "it is from before the first message that was heard in this epoch",
    "old": "it is so far behind that nobody remembers whether it has come",
}


def _state(source: Source, seq: int, window: int) -> str:
    if seq > source.last:
        return "ahead"
    back = source.last - seq
    if back >= window:
        return "old"
    if seq < source.first:
        return "before"
    if not source.absent >> back & 1:
        return "heard"
    return "missing" if source.missing >> back & 1 else "lost"


def neighbours(sources: Sources, src: bytes, seq: int, *, window: int) -> dict[int, str]:
    """What became of the messages right before and behind it, where that is known."""
    source = sources.get(src)
    if source is None:
        return {}
    return {one: _state(source, one, window) for one in (seq - 1, seq + 1) if one >= 0}
