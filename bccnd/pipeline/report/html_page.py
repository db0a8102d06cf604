"""Makes the page of a folder of tables: facts and findings by section; templates/page.html has the frame.

The matrix of loss is beside the page as JSON and CSV, and in it, unless it is large.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from bccnd.errors import PipelineError
from bccnd.pipeline.lake import place
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report import jinja_templates, loss_matrix, svg_charts
from bccnd.pipeline.report.delta_tables import Tables, TimeRange
from bccnd.pipeline.report.fact_queries import query_facts
from bccnd.pipeline.report.facts import Course, Facts, Recording, add_courses, add_links
from bccnd.pipeline.report.finding_checks import run_checks
from bccnd.pipeline.report.findings import ReportFinding, health
from bccnd.pipeline.report.loss_matrix import worst_first

#: rows of a table, with those that unfold
ROWS: Final = 200
#: findings with all their texts; the others are rows of a table
FINDINGS: Final = 30
#: characters of the matrix from which on it is only beside the page
_EMBEDDED: Final = 200_000
#: the section with the figures of a finding; of all others it is the matrix
_SECTION: Final = {
    **dict.fromkeys(("receiver", "not_recording", "missing", "damaged", "unknown_clock"), "receivers"),
    **dict.fromkeys(("restarts", "jump", "died", "silent", "host_down", "left"), "events"),
    **dict.fromkeys(("forged", "unknown"), "refused"),
    **dict.fromkeys(("sender", "twice", "unordered"), "programs"),
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
) -> tuple[str, list[ReportFinding]]:
    """Return the path of the page, and its findings. The page is written as a whole or not at all.

    Raises PipelineError.
    """
    try:
        facts = query_facts(Tables(where), time, progress)
    except PipelineError as error:
        if error.reason != "renewed":
            raise
        facts = query_facts(Tables(where), time, progress)
    ranked = run_checks(facts)
    progress("writing the page")
    pages = render(facts, ranked, title)
    with place.usable(out):
        root = place.Root(out)
        for name, text in pages.items():
            root.put(name, text)
    return f"{out.rstrip('/')}/index.html" if root.is_path else root.at("index.html"), ranked


def render(facts: Facts, ranked: Sequence[ReportFinding], title: str = "") -> dict[str, str]:
    """Return the texts of all files, the page last."""
    matrix = {"matrix.json": loss_matrix.to_json(facts), "matrix.csv": loss_matrix.to_csv(facts)}
    tables, state = _tables(facts), health(facts, ranked)
    shown = [(finding, *_place(finding, tables)) for finding in ranked[:FINDINGS]]
    rest = _table("rest", ranked[FINDINGS:], facts)
    values = {"facts": facts, "health": state, "shown": shown, "rest": rest, "tables": tables, "charts": svg_charts}
    values |= {"levels": ["none", *loss_matrix.LEVELS], **loss_matrix.matrix(facts), "most": ROWS}
    values |= {
        "before": add_courses(facts.before.values()),
        "files": {name: _link(name, matrix[name]) for name in matrix},
    }
    page = jinja_templates.page(title=title or "How the messages of the fleet arrived", **values)
    return {**matrix, "index.html": page}


def _link(name: str, text: str) -> str:
    """Return a link to a file beside the page that also works where only the page was sent, unless it is large."""
    kind = "application/json" if name.endswith(".json") else "text/csv;charset=utf-8"
    return name if len(text) > _EMBEDDED else f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"


def _place(finding: ReportFinding, tables: Mapping[str, Table]) -> tuple[str, int | None]:
    """Find the section with the figures of a finding, and the row."""
    section = _SECTION.get(finding.kind, "matrix")
    about = frozenset(finding.about[: 1 if section == "programs" else None])
    rows = enumerate(tables[section].rows)
    return section, next((place for place, row in rows if about and about <= row.names), None)


def _table(section: str, items: Sequence[Any], facts: Facts) -> Table:
    title, columns, names, bar, folded = jinja_templates.data("tables")[section]
    heads, cells = zip(*(column.split(": ") for column in columns.split("; ")), strict=True)
    lengths = [abs(getattr(item, bar) or 0) if bar else 0 for item in items]
    longest = max(lengths, default=0) or 1
    rows = [
        Row(
            [_cell(item, facts, *cell.split()) for cell in cells],
            frozenset(name for field in names.split() for name in _names(getattr(item, field))),
            100 * length / longest if bar else None,
        )
        for item, length in zip(items[:ROWS], lengths, strict=False)
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
        "matrix": worst_first(facts.links),
        "receivers": _receivers(facts),
        "programs": worst_first(add_links(link._replace(host="") for link in facts.links if not link.own)),
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


def _receivers(facts: Facts) -> list[SimpleNamespace]:
    recordings = {recording.host: recording for recording in facts.recordings}
    rows = []
    for host in facts.hosts:
        course, before = facts.receivers.get(host, Course()), facts.before.get(host)
        recorded = recordings[host]._asdict() if host in recordings else dict.fromkeys(Recording._fields)
        row = {**recorded, "host": host, "due": sum(course.due), "ratio": course.ratio}
        rows.append(SimpleNamespace(**row, before=before and before.ratio))
    return sorted(rows, key=lambda row: (-(row.ratio or 0), row.host))


def _events(facts: Facts) -> list[SimpleNamespace]:
    rows = []
    for line in svg_charts.time_line(facts):
        for start, end, kind in line.bars:
            row = {"what": svg_charts.BARS[kind], "end": None if kind == "open" else end, "length": end - start}
            rows.append(SimpleNamespace(start=start, name=line.name, **row))
        for start, kind, skipped in line.marks:
            meaning = svg_charts.MARKS[kind][1] + (f", {fmt.count(skipped)} skipped" if skipped else "")
            rows.append(SimpleNamespace(start=start, name=line.name, what=meaning, end=None, length=None))
    return sorted(rows, key=attrgetter("start", "name", "what"))


def set_name(received: frozenset[str], hosts: Sequence[str]) -> str:
    """Name a set of receivers by the shorter list: the hosts in it, or those that are not."""
    missing = sorted(set(hosts) - received)
    if len(missing) <= len(received):
        return f"all but {fmt.listing(missing)}" if missing else f"all {len(hosts)} hosts"
    return f"only {fmt.listing(sorted(received))}" if received else "no host"
