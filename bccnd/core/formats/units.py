"""Durations and sizes as people write them: a number and a unit."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)")
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_duration(text: str) -> float | None:
    """Parse ``200ms``, ``5s``, ``10m``, ``24h`` or ``7d`` as seconds; None for anything else."""
    found = _DURATION.fullmatch(text)
    return float(found[1]) * _SECONDS[found[2]] if found else None


def parse_size(text: str) -> int | None:
    """Parse ``64KiB``, ``4MiB`` or ``1GiB`` as bytes; None for anything else."""
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _BYTES[found[2]] if found else None
