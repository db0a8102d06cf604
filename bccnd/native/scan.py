"""Searching and parsing bytes without intermediate copies.

Results are those of `bytes.find`, `int` and slices; no byte outside the argument is read.
"""

from __future__ import annotations

from typing import Final

#: whether the modules listed in setup.py were compiled
COMPILED: Final = False

_LIMIT: Final = 1 << 63


def find(raw: bytes, byte: int, start: int) -> int:
    """Return the first position of ``byte`` in ``raw`` from ``start`` on, or -1."""
    return raw.find(byte, start) if start >= 0 else -1


def parse_uint(raw: bytes, start: int, end: int) -> int:
    """Return the number in ``raw[start:end]``, 1 to 19 decimal digits; -1 for anything else, and from 2^63 on."""
    digits = raw[start:end] if 0 <= start < end <= len(raw) else b""
    if not digits.isdigit() or len(digits) > 19:
        return -1
    value = int(digits)
    return value if value < _LIMIT else -1
