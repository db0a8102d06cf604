"""Decides which datagrams pass over links, by channel and sender; verifies nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire.bccn1 import MAX_CHAN

#: bytes within which the envelope of a datagram ends, with room to spare; and of the three fields behind it
_ENVELOPE, _HEAD = 320, 128 + 20 + MAX_CHAN + 3
#: the first byte of the channels of messages to all (``!``) and to some (``!host/...``)
_DIRECTED: Final = b"!"


def read_head(datagram: bytes) -> tuple[bytes, bytes]:
    """Return src and channel of a datagram of any version; both empty where it cannot be read."""
    body = datagram.find(b"]", 0, _ENVELOPE) + 1
    end = datagram.find(b"|", body, body + _HEAD)
    fields = datagram[body:end].split(b":")
    return (fields[0], fields[2]) if body and end >= 0 and len(fields) == 3 else (b"", b"")


class Filter:
    """Passes channels that match ``patterns``, and senders without a name if ``nameless``.

    ``""`` matches everything; messages to all and to some pass by that or by ``!``. What cannot be read is refused only
    where there are other patterns, as verdicts are the daemon's.
    """

    def __init__(self, patterns: Iterable[str], *, nameless: bool) -> None:
        texts = {text.encode() for text in patterns}
        self._all = b"" in texts
        self._directed = _DIRECTED in texts
        self._tree: PatternTree[bool] = PatternTree(DIALECTS["path"])
        for text in texts - {b"", _DIRECTED}:
            self._tree.add(self._tree.compile(text), True)
        self._nameless = nameless

    def check(self, datagram: bytes) -> str:
        """Return the reason for which a datagram may not pass; empty where it may."""
        src, chan = read_head(datagram)
        if src == b"?" and not self._nameless:
            return "nameless"
        if self._all:
            return ""
        if not chan:
            return "malformed"
        passes = self._directed if chan.startswith(_DIRECTED) else self._tree.match(chan)
        return "" if passes else "filtered"
