"""Searches bytes as `bytes.find` does; no byte outside the argument is read."""

from __future__ import annotations

from typing import Final

#: whether the modules listed in setup.py were compiled
COMPILED: Final = False


def find(raw: bytes, byte: int, start: int) -> int:
    """Return the first position of ``byte`` in ``raw`` from ``start`` on, or -1."""
    return raw.find(byte, start) if start >= 0 else -1
