"""The matrix of loss by program and receiving host: as the page shows it, as JSON, and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any, Final

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import Facts, Link, add_links, by_sending_host

#: rows and columns of the matrix on the page
SIZE: Final = 50
#: loss from which on a cell has the next colour; the first is for no loss at all
LEVELS: Final = {"below 0.1 %": 0.0, "below 1 %": 0.001, "below 5 %": 0.01, "below 20 %": 0.05, "20 % and more": 0.2}
#: what a spreadsheet takes for a formula
_FORMULA: Final = ("=", "+", "-", "@")


def level(ratio: float | None) -> int:
    return sum(ratio >= limit for limit in LEVELS.values()) if ratio else 0


def worst_first(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (-(link.ratio or 0), -link.lost, link.program, link.host))


def matrix(facts: Facts, limit: int = SIZE) -> dict[str, Any]:
    """Return loss by program (rows) and receiver (columns), the worst first; rows are sending hosts if there are too
    many programs. ``more`` are the numbers of rows and columns that are left out."""
    grouped = len({link.program for link in facts.links}) > limit
    links = by_sending_host(facts.links) if grouped else facts.links
    counted = [Link(link.host, link.program, *[0] * 8) if link.own else link for link in links]
    programs = [link.program for link in worst_first(add_links(link._replace(host="") for link in counted))]
    hosts = [link.host for link in worst_first(add_links(link._replace(program="") for link in counted))]
    cells = {(link.program, link.host): (link, level(link.ratio)) for link in links if link.due}
    more = max(len(programs) - limit, 0), max(len(hosts) - limit, 0)
    return {"programs": programs[:limit], "hosts": hosts[:limit], "cells": cells, "grouped": grouped, "more": more}


def _pairs(facts: Facts) -> list[dict[str, Any]]:
    """Return all pairs that are listed, the worst first; ``loss`` is the lost share, None if nothing was due."""
    return [
        {"program": link.program, "host": link.host, "loss": link.ratio, "lost": link.lost, "due": link.due}
        | {
            name: getattr(link, name)
            for name in ("lost_here", "lost_everywhere", "not_listening", "late", "dup", "own")
        }
        for link in worst_first(facts.links)
    ]


def to_json(facts: Facts) -> str:
    start, end = (f"{fmt.moment(at):%Y-%m-%dT%H:%M:%SZ}" for at in (facts.start, facts.end))
    return json.dumps({"from": start, "to": end, "pairs": _pairs(facts)}, ensure_ascii=False)


def to_csv(facts: Facts) -> str:
    """Return a table for spreadsheets. A name that one would take for a formula gets an apostrophe in front."""
    text = io.StringIO()
    pairs = _pairs(facts)
    table = csv.DictWriter(text, pairs[0].keys() if pairs else ["program", "host"], lineterminator="\n")
    table.writeheader()
    for pair in pairs:
        names = {name: f"'{pair[name]}" for name in ("program", "host") if pair[name].startswith(_FORMULA)}
        table.writerow({**pair, "own": int(pair["own"]), **names})
    return text.getvalue()
