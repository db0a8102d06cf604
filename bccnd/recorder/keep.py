"""How much of a journal is kept.

Law: what is kept without end is what nobody has said anything about.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Keep:
    """Seconds, and bytes of the files of this host; 0: without end."""

    age: float = 0.0
    size: int = 0
