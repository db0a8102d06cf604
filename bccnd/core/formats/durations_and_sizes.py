"""Parses numbers, durations and sizes as people write them: ASCII digits and a unit, within a range."""

from __future__ import annotations

import math
import re
from typing import Final

#: a thousand years, in seconds
MAX_SECONDS: Final = 3.2e10
#: more bytes than any disk has
MAX_SIZE: Final = 1 << 60

_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WHOLE: Final = re.compile(r"[0-9]{1,20}")
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE: Final = re.compile(r"([0-9]{1,19})(B|KiB|MiB|GiB)")
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HEAP: Final = re.compile(r"([1-9][0-9]{0,6})([mgMG])")


def parse_number(text: str) -> float | None:
    """Parse ``5``, ``0.5`` or ``1e3``; None for anything else, and beyond the largest float."""
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


def parse_whole(text: str) -> int | None:
    """Parse a whole number of at most 20 digits; None for anything else."""
    return int(text) if _WHOLE.fullmatch(text) else None


def parse_duration(text: str) -> float | None:
    """Parse ``200ms``, ``5s``, ``10m``, ``24h`` or ``7d`` as seconds; None for anything else, and beyond
    `MAX_SECONDS`."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else math.inf
    return seconds if seconds <= MAX_SECONDS else None


def parse_size(text: str) -> int | None:
    """Parse ``64KiB``, ``4MiB`` or ``1GiB`` as bytes; None for anything else, and beyond `MAX_SIZE`."""
    found = _SIZE.fullmatch(text)
    size = int(found[1]) * _BYTES[found[2]] if found else MAX_SIZE + 1
    return size if size <= MAX_SIZE else None


def parse_heap(text: str) -> int | None:
    """Parse a size as Java takes it, ``512m`` or ``2g``, as MiB; None for anything else."""
    found = _HEAP.fullmatch(text)
    return int(found[1]) << (10 if found[2] in "gG" else 0) if found else None
