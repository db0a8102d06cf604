"""Queries the facts of a report from the tables, in DuckDB by the views of facts.sql.

Memory depends on how many pairs of hosts and programs, channels and restarts there are, not on how large the tables
are. What a page does not list is counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, TypeVar

import duckdb

from bccnd.errors import PipelineError
from bccnd.pipeline.report import facts
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.delta_tables import NEEDED, Tables, TimeRange
from bccnd.pipeline.report.facts import Course, Facts, Link
from bccnd.pipeline.schema import STATE
from bccnd.pipeline.units import engine

#: steps of the courses over the period
STEPS: Final = 120
#: rows of each kind that are kept
LIMITS: Final = {
    "pairs of hosts and programs": 50_000,
    "restarts and silences": 20_000,
    "sets of receivers": 10_000,
    "channels": 20_000,
    "groups of refused datagrams": 5_000,
    "files that were set aside": 1_000,
}
_PAIRS, _EVENTS, _FILES = "pairs of hosts and programs", "restarts and silences", "files that were set aside"
#: the tables that are queried; facts.sql makes empty ones of those of the state that are not there
_TABLES: Final = (
    *("receiver_sets", "link_loss", "epochs", "delivery", "channel_loss", "liveness", "channel_traffic", "integrity"),
    *("skew", f"{STATE}/sessions", f"{STATE}/missing", f"{STATE}/damaged"),
)
#: megabytes that DuckDB may use; the rest is on a disk
_MEMORY: Final = 1024

#: what DuckDB and pyarrow report of a file that was removed
_GONE: Final = ("No files found", "No such file", "does not exist")

_Row = TypeVar("_Row")


def query_facts(
    tables: Tables, time: TimeRange | None = None, progress: Callable[[str], None] = lambda _: None
) -> Facts:
    """Raises PipelineError: no_tables, empty, foreign, renewed."""
    if NEEDED not in tables.names:
        remedy = "make them with: bccn pipeline build JOURNAL --out TABLES"
        raise PipelineError("no_tables", f"{tables.where}: no tables here: {NEEDED} does not exist", remedy)
    with engine.opened(_MEMORY, os.cpu_count() or 1) as database:
        try:
            return _Queries(tables, time or TimeRange(), database).collect(progress)
        except duckdb.Error as error:
            problem = f"{tables.where} cannot be read: {str(error).splitlines()[0][:300]}"
            if any(text in problem for text in _GONE):
                raise PipelineError(
                    "renewed", problem, "the tables are being replaced: try again in a moment"
                ) from error
            remedy = "make the tables again with: bccn pipeline build JOURNAL --out TABLES"
            raise PipelineError("foreign", problem, remedy) from error


class _Queries:
    def __init__(self, tables: Tables, time: TimeRange, database: duckdb.DuckDBPyConnection) -> None:
        self._tables = tables
        self._database = database
        self._folded: dict[str, int] = {}
        for table in tables.names.intersection(_TABLES):
            # A program's runs before the period tell which of its silences is none.
            tables.open(table, TimeRange(None, time.end) if table == "epochs" else time, database)
        start, stop = -(2**62) if time.start is None else time.start, 2**62 if time.end is None else time.end
        engine.set_variables(database, start=start, stop=stop)
        database.execute(files("bccnd.pipeline.report").joinpath("facts.sql").read_text("utf-8"))
        first, last = self._row("period")
        if first is None:
            problem = f"{tables.where}: these tables have no rows"
            if time != TimeRange():
                raise PipelineError("empty", f"{problem} from that time", "name another time with --since and --until")
            raise PipelineError("empty", problem, "check whether anything was recorded")
        self.start = first if time.start is None else max(first, time.start)
        self.end = last + fmt.MINUTE if time.end is None else min(last + fmt.MINUTE, time.end)
        self.step = max(fmt.MINUTE, -(-(self.end - self.start) // STEPS // fmt.MINUTE) * fmt.MINUTE)
        engine.set_variables(database, start=self.start, stop=self.end, step=self.step)

    def _row(self, view: str) -> tuple[Any, ...]:
        return self._database.view(view).fetchall()[0]

    def _list(self, view: str, kind: Callable[..., _Row], limit: str = _PAIRS) -> tuple[_Row, ...]:
        """Return the rows of a view up to a limit; the others are counted."""
        most = LIMITS[limit]
        # With the number of all rows in front, and the rank behind it
        rows = self._database.view(view).project("count(*) OVER (), *").order("ALL").limit(most).fetchall()
        if rows and rows[0][0] > most:
            self._folded[limit] = max(rows[0][0] - most, self._folded.get(limit, 0))
        return tuple(kind(*row[2:]) for row in rows)

    def collect(self, progress: Callable[[str], None]) -> Facts:
        progress("reading loss")
        links = self._list("links", Link)
        receivers, sending = self._courses()
        progress("reading restarts, silences and traffic")
        recordings = self._list("recordings", facts.Recording)
        messages, *bus = self._row("all_traffic")
        return Facts(
            self.start,
            self.end,
            self.step,
            hosts=tuple(sorted({link.host for link in links} | {recording.host for recording in recordings})),
            links=links,
            receivers=receivers,
            sending=sending,
            starts=self._list("starts", facts.Start, _EVENTS),
            unordered=self._list("unordered", facts.Unordered, _EVENTS),
            silences=self._list("silences", facts.Silence, _EVENTS),
            delivery=self._list(
                "delivery_sets", lambda hosts, n: facts.Delivery(frozenset(hosts), n), "sets of receivers"
            ),
            channels=self._list("channels", facts.Channel, "channels"),
            refusals=self._list("refusals", facts.Refusals, "groups of refused datagrams"),
            clocks=self._list("clocks", facts.Clock),
            recordings=recordings,
            missing=self._list("missing_records", facts.MissingRecords, _FILES),
            unusable=self._list("unusable_files", facts.UnusableFile, _FILES),
            messages=messages,
            bus=facts.BusTraffic(*bus),
            rest=self._rest(links) if _PAIRS in self._folded else None,
            before=self._courses_before() if self.end - self.start <= fmt.DAY else {},
            folded=self._folded,
        )

    def _rest(self, links: tuple[Link, ...]) -> Link:
        """Return the sum of all links that are not listed."""
        listed = (sum(counts) for counts in list(zip(*links, strict=True))[2:])
        return Link("", "", *(every - some for every, some in zip(self._row("all_links"), listed, strict=True)))

    def _courses(self) -> tuple[dict[str, Course], dict[str, Course]]:
        """Return loss over time by receiving and by sending host."""
        steps = max(-(-(self.end - self.start) // self.step), 1)
        counts: tuple[dict[str, list[list[int]]], ...] = ({}, {})
        for host, sender, step, *row in self._database.view("courses").order("ALL").fetchall():
            columns = counts[host is None].setdefault(sender if host is None else host, [[0] * steps for _ in row])
            for values, number in zip(columns, row, strict=True):
                values[step] = number
        receivers, sending = ({name: Course(*map(tuple, of)) for name, of in sums.items()} for sums in counts)
        return receivers, sending

    def _courses_before(self) -> dict[str, Course]:
        """Return loss over the same hours of the day before by receiving host. Queries behind this one are about that
        time."""
        self._tables.open(NEEDED, TimeRange(self.start - fmt.DAY, self.end - fmt.DAY), self._database)
        engine.set_variables(self._database, start=self.start - fmt.DAY, stop=self.end - fmt.DAY)
        return self._courses()[0]
