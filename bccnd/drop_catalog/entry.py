"""Entries of the drop catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

#: begins the name of each metric
PREFIX: Final = "bccnd_"
#: remedy and place to look for a bug of bccnd
BUG: Final = "Report the bug with the whole log entry (-o verbose)."
BUG_LOG: Final = "`journalctl -u bccnd BCCND_EVENT=internal_error -o verbose`"


class Drop(NamedTuple):
    """One reason for a drop: what happened and its effect, and the remedy.

    ``family`` is the metric without prefix, ``label`` the label that carries the name; it is empty where the metric has
    the drop's name. ``serious`` drops are worth an operator's attention, others are expected in normal operation.
    ``look`` says where to investigate, for the runbook. ``subject`` is what is dropped.
    """

    name: str
    family: str
    label: str
    serious: bool
    means: str
    remedy: str
    look: str
    subject: str

    @property
    def series(self) -> str:
        """The series of the metric that counts this drop."""
        return f"{PREFIX}{self.family}_total" + (f'{{{self.label}="{self.name}"}}' if self.label else "")

    def explain(self) -> tuple[str, str]:
        """Return what it means and the remedy, as parts of a sentence."""
        means, remedy = ((text[0].lower() + text[1:]).removesuffix(".") for text in (self.means, self.remedy))
        return means, remedy


def serious(name: str, means: str, remedy: str, look: str = "", subject: str = "") -> Drop:
    """Return a serious drop, with a metric of its own unless it is passed to `family`."""
    return Drop(name, name, "", True, means, remedy, look, subject)


def usual(name: str, means: str, remedy: str, look: str = "") -> Drop:
    """Return a usual drop likewise."""
    return Drop(name, name, "", False, means, remedy, look, "")


def family(metric: str, label: str, subject: str, look: str, *drops: Drop) -> Iterator[Drop]:
    """Yield the drops that one metric counts. ``look`` is for those without their own; ``{name}`` is their name."""
    for drop in drops:
        where = (drop.look or look).format(name=drop.name)
        yield drop._replace(family=metric, label=label, subject=subject, look=where)
