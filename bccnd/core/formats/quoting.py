"""Writes values in messages."""

from __future__ import annotations

from typing import Final

#: characters of a value
_MOST: Final = 60


def quote(value: object) -> str:
    """Write a value that a person has given, shortened."""
    if value is None:
        return "nothing"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number with too many digits"
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."
