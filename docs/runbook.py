"""Writes the entries of docs/runbook.md about drops, from the catalog (bccnd/drop_catalog/drops.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

from bccnd.drop_catalog.drops import DROPS, LOST
from bccnd.drop_catalog.entry import PREFIX, Drop
from docs.manual import wrapped
from docs.metrics import alerts_by_metric

#: the last section, which ends with the entries; text between its heading and the table is written by hand
HEADING: Final = "\n## What is dropped, by name\n"
#: the alert whose entry refers to those of drops
COLLECTIVE: Final = "BccndHampered"
_TABLE: Final = "\n| metric | look at | do |"


class Common(NamedTuple):
    """What most drops that one metric counts have in common: where to look, with NAME for the drop, and what to do."""

    look: str = ""
    remedy: str = ""


def _place(drop: Drop) -> str:
    """Where to look, with NAME in place of the drop's name."""
    return drop.look.replace(drop.name, "NAME")


def _most(texts: Iterable[str]) -> str:
    """Return the text that comes most often, if it comes more than twice."""
    ((text, count),) = Counter(texts).most_common(1)
    return text if count > 2 else ""


def _common() -> dict[str, Common]:
    found = {}
    for family in dict.fromkeys(drop.family for drop in DROPS):
        drops = [drop for drop in DROPS if drop.family == family]
        found[family] = Common(_most(map(_place, drops)), _most(drop.remedy for drop in drops))
    return {family: common for family, common in found.items() if any(common)}


def _alerted() -> dict[str, str]:
    """Return the alerts whose entries say what to check and to do about a drop, by the drop's family."""
    alone = {drop.family for drop in (*DROPS, LOST) if not drop.label}
    found = {metric.removeprefix(PREFIX): alerts for metric, alerts in alerts_by_metric().items()}
    return {family: alerts[0] for family, alerts in found.items() if family in alone and alerts[0] != COLLECTIVE}


def _entry(name: str, drops: list[Drop], common: dict[str, Common], alerts: dict[str, str]) -> str:
    parts = [f"### {name}"]
    for drop in drops:
        known = common.get(drop.family, Common())
        usual = "" if drop.serious else ", usual"
        if drop.family in alerts:
            alert = alerts[drop.family]
            see = f"See [{alert}](#{alert.lower()})."
            parts.append(wrapped(f"`{PREFIX}{drop.family}_total`{usual}: {drop.means} {see}"))
            continue
        check = "" if _place(drop) == known.look else f" *Check:* {drop.look}."
        remedy = "" if drop.remedy in (known.remedy, "Nothing.") else f" *Do:* {drop.remedy}"
        parts.append(wrapped(f"`{PREFIX}{drop.family}_total`{usual}: {drop.means}{check}{remedy}"))
    return "\n\n".join(parts)


def entries() -> str:
    """Return where to look by metric, and one entry for each name, in alphabetical order."""
    known = sorted((*DROPS, LOST), key=lambda drop: drop.name)
    common, alerts = _common(), _alerted()
    rows = [f"| `{PREFIX}{family}_total` | {one.look} | {one.remedy} |" for family, one in sorted(common.items())]
    table = "\n".join((_TABLE.strip(), "| --- | --- | --- |", *rows))
    found = (_entry(name, list(drops), common, alerts) for name, drops in groupby(known, key=lambda drop: drop.name))
    return "\n\n".join((table, *found))


def filled(text: str) -> str:
    """Return the runbook with its current entries. Raises ValueError if it has no place for them."""
    before, found, rest = text.partition(HEADING)
    if not found or "\n## " in rest:
        raise ValueError(f"docs/runbook.md has to end with the section {HEADING.strip()!r}")
    by_hand = rest.partition(_TABLE)[0].partition("\n### ")[0]
    return f"{before}{found}{by_hand.rstrip()}\n\n{entries()}\n"
