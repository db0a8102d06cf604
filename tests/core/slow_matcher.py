"""A slow matcher of patterns, written from the documents alone; the tree of patterns is compared with it."""

from __future__ import annotations

import re

DIALECT_NAMES = ("path", "sbus", "sbus-dot", "broker")


def separator(dialect: str) -> bytes:
    return b"." if dialect == "sbus-dot" else b"/"


def matches(dialect: str, pattern: bytes, key: bytes) -> bool:
    if not pattern:
        return True
    return _by_table(pattern, key) if dialect == "broker" else _by_expression(dialect, pattern, key)


def _by_expression(dialect: str, pattern: bytes, key: bytes) -> bool:
    mark = separator(dialect)
    # "a/>" means one or more tokens behind "a/"; an empty one counts.
    all_below = pattern.endswith(mark)
    if dialect == "path" and (pattern == b">" or pattern.endswith(b"/>")):
        pattern, all_below = pattern[:-1], True
    # A star takes all up to the separator and gives nothing back: a possessive quantifier.
    star = b"[^%b]*+" % re.escape(mark)
    expression = star.join(re.escape(piece) for piece in pattern.split(b"*")) + (b".*" if all_below else b"")
    return re.fullmatch(expression, key, re.DOTALL) is not None


def _by_table(pattern: bytes, key: bytes) -> bool:
    levels, topics = pattern.split(b"/"), key.split(b"/")
    table = [[False] * (len(topics) + 1) for _ in range(len(levels) + 1)]
    table[0][0] = True
    for i, level in enumerate(levels, 1):
        table[i][0] = level == b"*" and table[i - 1][0]
        for j, topic in enumerate(topics, 1):
            if level == b"*":
                table[i][j] = table[i - 1][j] or table[i][j - 1]
            else:
                table[i][j] = table[i - 1][j - 1] and level in (b"+", topic)
    return table[-1][-1]
