"""Patterns and keys by chance, and the slow matcher that they are matched by."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.core.slow_matcher import DIALECT_NAMES, matches, separator

__all__ = ["DIALECT_NAMES", "foreign", "keys", "matches", "patterns", "separator", "texts"]


def texts(dialect: str, tokens: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Tokens of a list with the dialect's separators between, up to four of them."""
    return st.lists(st.sampled_from(tokens), min_size=1, max_size=4).map(separator(dialect).join)


def foreign(dialect: str) -> bytes:
    """A token with the separator of another dialect inside."""
    return b"a/b" if separator(dialect) == b"." else b"a.b"


def patterns(dialect: str) -> st.SearchStrategy[bytes]:
    marks = (b"*", b"+", b">", b"")
    return texts(dialect, (b"a", b"b", b"ab", *marks, *marks, b"a*", b"**", b"a*b", b"*a", b"!", foreign(dialect)))


def keys(dialect: str) -> st.SearchStrategy[bytes]:
    return texts(dialect, (b"a", b"a", b"b", b"ab", b"", b"abb", b"*", b"+", b">", foreign(dialect)))
