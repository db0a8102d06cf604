"""How long, and how much, of a journal is kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RetentionPolicy:
    """Seconds, and bytes of the files of this host; 0 sets no limit."""

    age: float = 0.0
    size: int = 0
