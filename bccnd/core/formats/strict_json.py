"""Reads JSON from elsewhere strictly: anything beyond the standard or the limits of Python is a ValueError."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def parse_json(text: bytes | str) -> Any:
    """Parse JSON. Raises ValueError for other text, and for numbers and nesting beyond the limits of Python."""
    try:
        return json.loads(text, parse_float=_parse_float, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _parse_float(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word[:20]} is no finite number")


def nested_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects in parsed JSON are nested deeper than so many levels."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [one for one in layer if isinstance(one, dict | list)]
        if not layer:
            return False
        layer = [item for one in layer for item in (one.values() if isinstance(one, dict) else one)]
    return True
