"""Types of the drop catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

#: severities: expected in normal operation, and worth an operator's attention
USUAL: Final = False
SERIOUS: Final = True


class Entry(NamedTuple):
    """One reason for a drop: its name, its severity, what happened and its effect, the remedy.

    ``look`` says where to investigate, for the runbook; without it that of the family applies.
    """

    name: str
    serious: bool
    means: str
    remedy: str
    look: str = ""


class Drop(NamedTuple):
    """An entry with its family: the metric without prefix. ``label`` is the label that carries the name, empty where
    the family is the name. ``subject`` is what is dropped."""

    name: str
    family: str
    label: str
    serious: bool
    means: str
    remedy: str
    look: str
    subject: str


class DropFamily(NamedTuple):
    """The drops that one metric counts. ``{name}`` in ``look`` stands for the entry's name."""

    metric: str
    label: str
    subject: str
    look: str
    entries: tuple[Entry, ...]

    def drops(self) -> Iterator[Drop]:
        for name, serious, means, remedy, look in self.entries:
            where = (look or self.look).format(name=name)
            yield Drop(name, self.metric, self.label, serious, means, remedy, where, self.subject)


def single(metric: str, serious: bool, means: str, remedy: str, look: str, subject: str = "") -> DropFamily:
    """Return a family of one drop, which has the metric's name."""
    return DropFamily(metric, "", subject, look, (Entry(metric, serious, means, remedy),))
