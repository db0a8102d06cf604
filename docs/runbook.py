"""Writes the entries of docs/runbook.md about drops, from the catalog (bccnd/drops/catalog.py)."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Final

from bccnd.drops.catalog import DROPS, LOST
from bccnd.drops.entry import PREFIX, Drop
from docs.manual import wrapped

#: the last section, which ends with the entries; text between its heading and the table is written by hand
HEADING: Final = "\n## What is dropped, by name\n"
_TABLE: Final = "\n| metric | look at |"


def _place(drop: Drop) -> str:
    """Where to look, with NAME in place of the drop's name."""
    return drop.look.replace(drop.name, "NAME")


def _common() -> dict[str, str]:
    """Return where to look for most of the drops that one metric counts, by the metric."""
    found: dict[str, str] = {}
    for family in dict.fromkeys(drop.family for drop in DROPS):
        place, count = Counter(_place(drop) for drop in DROPS if drop.family == family).most_common(1)[0]
        if count > 1:
            found[family] = place
    return found


def _entry(name: str, drops: list[Drop], common: dict[str, str]) -> str:
    parts = [f"### {name}"]
    for drop in drops:
        own = "" if common.get(drop.family) == _place(drop) else f" *Check:* {drop.look}."
        usual = "" if drop.serious else ", usual"
        parts.append(wrapped(f"`{PREFIX}{drop.family}_total`{usual}: {drop.means}{own} *Do:* {drop.remedy}"))
    return "\n\n".join(parts)


def entries() -> str:
    """Return where to look by metric, and one entry for each name, in alphabetical order."""
    known = sorted((*DROPS, LOST), key=lambda drop: drop.name)
    common = _common()
    rows = [f"| `{PREFIX}{family}_total` | {place} |" for family, place in sorted(common.items())]
    table = "\n".join((_TABLE.strip(), "| --- | --- |", *rows))
    found = (_entry(name, list(drops), common) for name, drops in groupby(known, key=lambda drop: drop.name))
    return "\n\n".join((table, *found))


def filled(text: str) -> str:
    """Return the runbook with its current entries. Raises ValueError if it has no place for them."""
    before, found, rest = text.partition(HEADING)
    if not found or "\n## " in rest:
        raise ValueError(f"docs/runbook.md has to end with the section {HEADING.strip()!r}")
    by_hand = rest.partition(_TABLE)[0].partition("\n### ")[0]
    return f"{before}{found}{by_hand.rstrip()}\n\n{entries()}\n"
