"""Writes the default of each key, in parentheses, into packaging/man/bccnd.yaml.5, from the settings.

Invariant: only the parentheses of entries are written. A default that is made when it is needed, or that stands for
"nothing is set", is described in words by hand, and these words are kept.
"""

from __future__ import annotations

import re
from typing import Any, Final

from docs.reference import Key, in_words, keys

_ENTRY: Final = re.compile(r"^\.It Cm (?P<path>[a-z._]+)(?: Pq (?P<words>.*))?$", re.MULTILINE)
_SIZES: Final = ((30, "GiB"), (20, "MiB"), (10, "KiB"))


def spelled(key: Key) -> str | None:
    """A default as it is written in the file; None where words are needed for it."""
    value: Any = key.default
    if isinstance(value, bool):
        return str(value).lower()
    if key.type == "address:port, or off" and value:
        return "{}:{}".format(*value)
    if isinstance(value, int | float):
        return _number(value, key.type)
    if isinstance(value, tuple) and value and all(isinstance(one, str) for one in value):
        return "[{}]".format(", ".join(f'"{one}"' for one in value))
    return value if isinstance(value, str) and value else None


def _number(value: float, kind: str) -> str:
    if kind == "file mode":
        return rf"\(dq{int(value):04o}\(dq"
    if kind == "duration" and value:
        if value < 1:
            return f"{value * 1000:g}ms"
        return f"{value:g}s" if value % 3600 else f"{value / 3600:g}h"
    if kind == "size" and value:
        for shift, unit in _SIZES:
            if not value % (1 << shift):
                return f"{int(value) >> shift}{unit}"
    return f"{value:.12g}"


def filled(page: str) -> str:
    """The manual page with the defaults as they are now. Raises ValueError if its entries are not those of the keys."""
    known = {key.path: key for key in keys()}
    entries = [found["path"] for found in _ENTRY.finditer(page)]
    if sorted(entries) != sorted(known):
        wrong = sorted(set(entries) ^ set(known)) or "an entry that is there twice"
        raise ValueError(f"bccnd.yaml(5) and the settings have different keys: {wrong}")

    def entry(found: re.Match[str]) -> str:
        key = known[found["path"]]
        words = "" if key.required else spelled(key) or found["words"] or ""
        if not key.required and not key.default and not spelled(key) and not in_words(words):
            raise ValueError(f"bccnd.yaml(5) must describe the default of {key.path} in words")
        return f".It Cm {key.path}" + (f" Pq {words}" if words else "")

    return _ENTRY.sub(entry, page)
