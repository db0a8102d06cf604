"""Makes the page of a folder of tables: facts and findings by section; templates/page.html has the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from bccnd.errors import PipelineError
from bccnd.pipeline.lake import place
from bccnd.pipeline.report import charts, rendering
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import Course, Facts, Link, Recording, add_courses, add_links, by_sending_host
from bccnd.pipeline.report.findings import Finding, findings, health
from bccnd.pipeline.report.gather import gather
from bccnd.pipeline.report.table_reader import Tables, TimeRange

#: rows of a table, with those that unfold; rows and columns of the matrix
ROWS: Final = 200
MATRIX: Final = 50
#: findings with all their texts; the others are rows of a table
FINDINGS: Final = 30
#: loss from which on a cell of the matrix has the next colour; the first is for no loss at all
LEVELS: Final = {"below 0.1 %": 0.0, "below 1 %": 0.001, "below 5 %": 0.01, "below 20 %": 0.05, "20 % and more": 0.2}
#: the section with the figures of a finding; of all others it is the matrix
_SECTION: Final = {
    **dict.fromkeys(("receiver", "not_recording"), "receivers"),
    **dict.fromkeys(("restarts", "jump", "died", "silent", "host_down", "left"), "events"),
    **dict.fromkeys(("forged", "unknown"), "refused"),
    **dict.fromkeys(("sender", "twice"), "programs"),
    "flood": "channels",
    "clock": "clocks",
}


class Row(NamedTuple):
    """``names`` are what it is about: findings link to it by these. ``bar`` is in percent of the longest."""

    cells: Sequence[str]
    names: frozenset[str]
    bar: float | None


class Table(NamedTuple):
    """Heads of numbers begin with #. ``more`` counts rows that are left out."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Row]
    more: int


def report(
    where: str,
    out: str,
    *,
    time: TimeRange | None = None,
    title: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[str, list[Finding]]:
    """Return the path of the page, and its findings. The page is written as a whole or not at all.

    Raises PipelineError.
    """
    try:
        facts = gather(Tables(where), time, progress)
    except PipelineError as error:
        if error.reason != "renewed":
            raise
        facts = gather(Tables(where), time, progress)
    ranked = findings(facts)
    progress("writing the page")
    text = render_page(facts, ranked, title)
    with place.usable(out):
        place.Root(out).put("index.html", text)
    return f"{out.rstrip('/')}/index.html", ranked


def render_page(facts: Facts, ranked: Sequence[Finding], title: str = "") -> str:
    """Return the whole page as one text."""
    tables, state = _tables(facts), health(facts, ranked)
    shown = [(finding, *_place(finding, tables)) for finding in ranked[:FINDINGS]]
    rest = _table("rest", ranked[FINDINGS:], facts)
    values = {"facts": facts, "health": state, "shown": shown, "rest": rest, "tables": tables, "charts": charts}
    values |= {"levels": ["none", *LEVELS], "before": add_courses(facts.before.values()), **matrix(facts)}
    return rendering.page(title=title or "How the messages of the fleet arrived", **values)


def _place(finding: Finding, tables: Mapping[str, Table]) -> tuple[str, int | None]:
    """Find the section with the figures of a finding, and the row."""
    section = _SECTION.get(finding.kind, "matrix")
    about = frozenset(finding.about[: 1 if section == "programs" else None])
    rows = enumerate(tables[section].rows)
    return section, next((place for place, row in rows if about and about <= row.names), None)


def _table(section: str, items: Sequence[Any], facts: Facts) -> Table:
    title, columns, names, bar, folded = rendering.data("tables")[section]
    heads, cells = zip(*(column.split(": ") for column in columns.split("; ")), strict=True)
    longest = max((abs(getattr(item, bar)) for item in items), default=0) if bar else 0
    rows = [
        Row(
            [_cell(item, facts, *cell.split()) for cell in cells],
            frozenset(name for field in names.split() for name in _names(getattr(item, field))),
            100 * abs(getattr(item, bar)) / (longest or 1) if bar else None,
        )
        for item in items[:ROWS]
    ]
    return Table(title, heads, rows, facts.folded.get(folded, 0) + max(len(items) - ROWS, 0))


def _cell(item: Any, facts: Facts, name: str, form: str = "") -> str:
    value = getattr(item, name)
    if value is None or not form:
        return str(value or "")
    return fmt.when(value, facts.period) if form == "when" else str(getattr(fmt, form)(value))


def _names(value: str | Iterable[str]) -> Iterable[str]:
    return {value, value.partition("/")[0]} if isinstance(value, str) else value


def _tables(facts: Facts) -> dict[str, Table]:
    items: dict[str, Sequence[Any]] = {
        "matrix": _worst_first(facts.links),
        "receivers": _receivers(facts),
        "programs": _worst_first(add_links(link._replace(host="") for link in facts.links if not link.own)),
        "channels": facts.channels,
        "events": _events(facts),
        "sets": [_more(row, name=set_name(row.hosts, facts.hosts), size=len(row.hosts)) for row in facts.delivery],
        "refused": [
            _more(row, sources=fmt.listing(row.claimed, more=row.names - len(row.claimed))) for row in facts.refusals
        ],
        "clocks": sorted(facts.clocks, key=lambda clock: (-abs(clock.middle), clock.host)),
    }
    return {section: _table(section, of_section, facts) for section, of_section in items.items()}


def _more(item: Any, **values: Any) -> SimpleNamespace:
    return SimpleNamespace(**item._asdict(), **values)


def _worst_first(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: (-link.ratio, -link.lost, link.program, link.host))


def _receivers(facts: Facts) -> list[SimpleNamespace]:
    recordings = {recording.host: recording for recording in facts.recordings}
    rows = []
    for host in facts.hosts:
        course, before = facts.receivers.get(host, Course()), facts.before.get(host)
        recorded = recordings[host]._asdict() if host in recordings else dict.fromkeys(Recording._fields)
        row = {**recorded, "host": host, "due": sum(course.due), "ratio": course.ratio}
        rows.append(SimpleNamespace(**row, before=before and before.ratio))
    return sorted(rows, key=lambda row: (-row.ratio, row.host))


def _events(facts: Facts) -> list[SimpleNamespace]:
    rows = []
    for line in charts.time_line(facts):
        for start, end, kind in line.bars:
            row = {"what": charts.BARS[kind], "end": None if kind == "open" else end, "length": end - start}
            rows.append(SimpleNamespace(start=start, name=line.name, **row))
        for start, kind, skipped in line.marks:
            meaning = charts.MARKS[kind][1] + (f", {fmt.count(skipped)} skipped" if skipped else "")
            rows.append(SimpleNamespace(start=start, name=line.name, what=meaning, end=None, length=None))
    return sorted(rows, key=attrgetter("start", "name", "what"))


def matrix(facts: Facts, limit: int = MATRIX) -> dict[str, Any]:
    """Return loss by program (rows) and receiver (columns), the worst first; rows are sending hosts if there are too
    many programs. ``more`` are the numbers of rows and columns that are left out."""
    grouped = len({link.program for link in facts.links}) > limit
    links = by_sending_host(facts.links) if grouped else facts.links
    counted = [Link(link.host, link.program, *[0] * 8) if link.own else link for link in links]
    programs = [link.program for link in _worst_first(add_links(link._replace(host="") for link in counted))]
    hosts = [link.host for link in _worst_first(add_links(link._replace(program="") for link in counted))]
    cells = {(link.program, link.host): (link, level(link.ratio)) for link in links if link.due}
    more = max(len(programs) - limit, 0), max(len(hosts) - limit, 0)
    return {"programs": programs[:limit], "hosts": hosts[:limit], "cells": cells, "grouped": grouped, "more": more}


def level(ratio: float) -> int:
    return sum(ratio >= limit for limit in LEVELS.values()) if ratio else 0


def set_name(received: frozenset[str], hosts: Sequence[str]) -> str:
    """Name a set of receivers by the shorter list: the hosts in it, or those that are not."""
    missing = sorted(set(hosts) - received)
    if len(missing) <= len(received):
        return f"all but {fmt.listing(missing)}" if missing else f"all {len(hosts)} hosts"
    return f"only {fmt.listing(sorted(received))}" if received else "no host"
