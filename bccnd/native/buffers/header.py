"""Finds the fields of a datagram's body: ``<src>:<seq>:<chan>|<payload>``. Source: BCCN, WIRE FORMAT.

Nothing is copied, and no byte outside the argument is read. What src and channel may be made of is checked elsewhere.
"""

from __future__ import annotations

#: significant digits of the highest number of 64 bits
_DIGITS = 20
_LIMIT = 1 << 64


class Header:
    """Where the fields of the last parsed datagram are: src is ``raw[src:src_end]``, the channel ``raw[chan:bar]``, and
    the payload begins behind ``bar``. ``seq_valid`` tells whether ``seq`` is a number of 64 bits in decimal digits."""

    __slots__ = ("bar", "chan", "seq", "seq_valid", "src", "src_end")

    def __init__(self) -> None:
        self.src = self.src_end = self.chan = self.bar = self.seq = 0
        self.seq_valid = False

    def src_of(self, raw: bytes) -> bytes:
        """Return the src of the parsed datagram."""
        return raw[self.src : self.src_end]

    def parse(self, raw: bytes, at: int) -> bool:
        """Find the fields of the body that begins at ``at``; False unless there are just three before the bar."""
        bar = raw.find(b"|", at) if at >= 0 else -1
        fields = raw[at:bar].split(b":") if bar >= 0 else ()
        if len(fields) != 3:
            return False
        src, digits, chan = fields
        self.src, self.src_end, self.chan, self.bar = at, at + len(src), bar - len(chan), bar
        # Leading zeros are legal, but int() of thousands of digits is slow.
        significant = digits.lstrip(b"0")
        self.seq_valid = digits.isdigit() and len(significant) <= _DIGITS and int(significant or b"0") < _LIMIT
        self.seq = int(significant or b"0") if self.seq_valid else 0
        return True
