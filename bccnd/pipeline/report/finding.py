"""What a finding is."""

from __future__ import annotations

from typing import Final, NamedTuple

URGENT: Final = 0
LOOK: Final = 1
NOTE: Final = 2


class Finding(NamedTuple):
    """One thing to look at. ``about`` are the hosts, senders, addresses or channels that it names."""

    kind: str
    severity: int
    about: tuple[str, ...]
    title: str
    evidence: str
    cause: str
    remedy: str
    weight: float = 0.0
