"""Which channels a pattern matches, by regular expressions instead of the product's trees."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=4096)
def _expression(pattern: bytes, dialect: str) -> re.Pattern[bytes]:
    separator = b"." if dialect == "sbus-dot" else b"/"
    some = b"[^%b]*" % re.escape(separator)
    tokens = pattern.split(separator)
    if dialect == "broker":
        made = b""
        for token in tokens:
            if token == b"*":
                made += b"(?:%b%b)*" % (re.escape(separator), some)
            else:
                made += re.escape(separator) + (some if token == b"+" else re.escape(token))
        # each token has its separator before it
        return re.compile(made, re.DOTALL)
    below = tokens[-1] == b"" or (dialect == "path" and tokens[-1] == b">")
    parts = [re.escape(token).replace(rb"\*", some) for token in (tokens[:-1] if below else tokens)]
    return re.compile(re.escape(separator).join([*parts, b".*"] if below else parts), re.DOTALL)


def matches(pattern: bytes, channel: bytes, dialect: str = "path") -> bool:
    """Whether a plain channel is one of a pattern's."""
    if not pattern:
        return True
    if dialect == "broker":
        return _expression(pattern, dialect).fullmatch(b"/" + channel) is not None
    return _expression(pattern, dialect).fullmatch(channel) is not None
