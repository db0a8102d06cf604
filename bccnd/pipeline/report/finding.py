"""What a finding is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from bccnd.pipeline.report import rendering
from bccnd.pipeline.report.facts import Facts

URGENT, LOOK, NOTE = range(3)
SEVERITIES: Final = ("urgent", "look", "note")


class Finding(NamedTuple):
    """One thing to look at. ``about`` are the hosts, programs, addresses or channels concerned, ``weight`` orders
    findings of one kind and can be compared between reports, ``at`` is when it began, if it has a time of its own."""

    kind: str
    severity: int
    about: tuple[str, ...]
    title: str
    evidence: str
    cause: str
    remedy: str
    weight: float = 0.0
    at: int | None = None


def write(
    facts: Facts,
    kind: str,
    severity: int,
    about: Sequence[str],
    values: Mapping[str, Any],
    weight: float = 0.0,
    at: int | None = None,
    texts: str = "",
) -> Finding:
    """A finding with its texts from findings.toml: the section of its kind, or ``texts``."""
    every = {**values, "facts": facts, "period": facts.period, "at": at}
    parts = {
        part: rendering.text(texts or kind, part).render(every) for part in ("title", "evidence", "cause", "remedy")
    }
    return Finding(kind, severity, tuple(about), **parts, weight=weight, at=at)
