"""Writes the entries of docs/runbook.md about drops, from the catalog (bccnd/drops/catalog.py)."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from bccnd.drops.catalog import DROPS, LOST
from bccnd.drops.entry import Drop
from docs.manual import wrapped

#: the last section, which ends with the entries; text between its heading and the first entry is written by hand
HEADING: Final = "\n## What is dropped, by name\n"
_ENTRY: Final = "\n### "


def _means(drop: Drop, *, alone: bool) -> str:
    label = f'{{{drop.label}="{drop.name}"}}' if drop.label else ""
    of = "" if alone else f"{drop.subject}, "
    return f"*Means* ({of}`bccnd_{drop.family}_total{label}`{'' if drop.serious else ', usual'}): {drop.means}"


def _entry(name: str, drops: list[Drop]) -> str:
    looks = dict.fromkeys(drop.look for drop in drops)
    remedies = list(dict.fromkeys(drop.remedy for drop in drops))
    if len(remedies) > 1:
        remedies = [f"({drop.subject}) {drop.remedy}" for drop in drops]
    paragraphs = [_means(drop, alone=len(drops) == 1) for drop in drops]
    paragraphs += [f"*Look at:* {'; '.join(looks)}.", f"*Do:* {' '.join(remedies)}"]
    return "\n\n".join((f"### {name}", *map(wrapped, paragraphs)))


def entries() -> str:
    """Return one entry for each name, in alphabetical order."""
    known = sorted((*DROPS, LOST), key=lambda drop: drop.name)
    return "\n\n".join(_entry(name, list(drops)) for name, drops in groupby(known, key=lambda drop: drop.name))


def filled(text: str) -> str:
    """Return the runbook with its current entries. Raises ValueError if it has no place for them."""
    before, found, rest = text.partition(HEADING)
    if not found or "\n## " in rest:
        raise ValueError(f"docs/runbook.md has to end with the section {HEADING.strip()!r}")
    return f"{before}{found}{rest.partition(_ENTRY)[0].rstrip()}\n\n{entries()}\n"
