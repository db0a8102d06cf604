"""Makes the facts of a report from the tables.

Memory depends on what a page can show, not on how large the tables are; what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bccnd.errors import PipelineError
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import (
    Channel,
    Clock,
    Course,
    DayBefore,
    Delivery,
    Facts,
    Link,
    Recording,
    Refusals,
    Silence,
    Start,
)
from bccnd.pipeline.report.grouped_sums import GroupedSums
from bccnd.pipeline.report.program_runs import Runs, merge_runs
from bccnd.pipeline.report.table_reader import COLUMNS, NEEDED, SESSIONS, Tables, TimeRange

#: steps of the courses over the period
STEPS: Final = 120
#: groups that are kept
LINKS: Final = 50_000
COURSES: Final = 500_000
RUNS: Final = 20_000
SETS: Final = 10_000
CHANNELS: Final = 20_000
REFUSALS: Final = 5_000
#: names claimed by one address that are kept
CLAIMED: Final = 3


def gather(tables: Tables, time: TimeRange | None = None, progress: Callable[[str], None] = lambda _: None) -> Facts:
    """Raises PipelineError."""
    if NEEDED not in tables.names:
        raise PipelineError(
            "no_tables",
            f"{tables.where}: no tables here: {NEEDED} does not exist",
            "make them with: bccn pipeline build JOURNAL --out TABLES",
        )
    return _Gathering(tables, time or TimeRange()).facts(progress)


class _Gathering:
    def __init__(self, tables: Tables, time: TimeRange) -> None:
        self._tables = tables
        self._time = time
        self._folded: dict[str, int] = {}

    def facts(self, progress: Callable[[str], None]) -> Facts:
        progress("reading loss")
        start, end = self._period()
        step = max(fmt.MINUTE, -(-(end - start) // STEPS // fmt.MINUTE) * fmt.MINUTE)
        links, rest = self._links()
        receivers, sending = self._courses(self._time, start, end, step)
        recordings = self._recordings(start, end)
        progress("reading restarts and silences")
        starts, silences = self._runs(start, end)
        progress("reading traffic")
        channels, all_messages = self._channels()
        return Facts(
            start=start,
            end=end,
            step=step,
            hosts=tuple(sorted({link.host for link in links} | {one.host for one in recordings})),
            programs=len({link.program for link in links}),
            messages=self._tables.count("messages", self._time, "first_ts"),
            links=links,
            rest=rest,
            receivers=receivers,
            sending=sending,
            recordings=recordings,
            before=self._day_before(start, end, step),
            starts=starts,
            silences=silences,
            delivery=self._delivery(),
            channels=channels,
            all_messages=all_messages,
            all_channels=len(channels),
            refusals=self._refusals(),
            clocks=self._clocks(),
            folded=self._folded,
            missing=tuple(sorted(set(COLUMNS) - {SESSIONS} - self._tables.names)),
        )

    def _sums(self, name: str, sums: GroupedSums) -> list[dict[str, Any]]:
        """The groups; how many were dropped is noted as ``name``."""
        rows = sums.rows()
        if sums.folded:
            self._folded[name] = sums.folded
        return rows

    def _period(self) -> tuple[int, int]:
        """From the first to the last minute with data, within the range asked for."""
        ends = [
            pc.min_max(rows["win"]).as_py()
            for table in ("link_loss", "channel_traffic", "integrity")
            for rows in self._tables.rows(table, self._time, "win", ["win"])
            if rows.num_rows
        ]
        start, end = self._time.start, self._time.end
        if not ends:
            asked = self._time != TimeRange()
            raise PipelineError(
                "empty",
                f"{self._tables.where}: there is nothing in these tables" + (" from that time" if asked else ""),
                "name another time with --from and --to" if asked else "check whether anything was recorded",
            )
        first, last = min(one["min"] for one in ends), max(one["max"] for one in ends) + fmt.MINUTE
        return first if start is None else max(first, start), last if end is None else min(last, end)

    # -- loss

    def _links(self) -> tuple[tuple[Link, ...], Link | None]:
        columns = Link._fields[2:]
        sums = GroupedSums(["host", "program"], {**dict.fromkeys(columns, "sum"), "weight": "sum"}, "weight", LINKS)
        for rows in self._tables.rows("link_loss", self._time, "win"):
            weight = pc.add(pc.multiply(pc.add(rows["lost_here"], rows["lost_everywhere"]), 1000), rows["expected"])
            sums.add(rows.append_column("weight", weight).append_column("program", _program(rows["src"])))
        rows = self._sums("pairs of hosts and programs", sums)
        links = tuple(Link(row["host"], row["program"], *(row[name] for name in columns)) for row in rows)
        return links, Link("", "", *(sums.rest[name] for name in columns)) if sums.folded else None

    def _courses(self, time: TimeRange, start: int, end: int, step: int) -> tuple[dict[str, Course], dict[str, Course]]:
        """By receiving and by sending host, without a host's own messages."""
        by_host, by_sender = (
            GroupedSums(["name", "step"], dict.fromkeys(Course._fields, "sum"), "due", COURSES) for _ in range(2)
        )
        for rows in self._tables.rows("link_loss", time, "win"):
            sender = _cut(rows["src"], "(?s)/.*")
            counts = {
                "step": pc.divide(pc.subtract(rows["win"], start), step),
                "due": pc.subtract(rows["expected"], rows["not_listening"]),
                "lost": pc.add(rows["lost_here"], rows["lost_everywhere"]),
                "absent": rows["not_listening"],
            }
            crossing = pc.not_equal(sender, rows["host"])
            by_host.add(pa.table({"name": rows["host"], **counts}).filter(crossing))
            by_sender.add(pa.table({"name": sender, **counts}).filter(crossing))
        steps = max(-(-(end - start) // step), 1)
        return (
            _by_step(self._sums("hosts over time", by_host), steps),
            _by_step(self._sums("sending hosts over time", by_sender), steps),
        )

    def _day_before(self, start: int, end: int, step: int) -> DayBefore | None:
        """None for a period of more than a day, and if there is nothing of the day before."""
        if end - start > fmt.DAY:
            return None
        time = TimeRange(start - fmt.DAY, end - fmt.DAY)
        receivers, _ = self._courses(time, start - fmt.DAY, end - fmt.DAY, step)
        return DayBefore(self._tables.count("messages", time, "first_ts"), receivers) if receivers else None

    def _delivery(self) -> tuple[Delivery, ...]:
        sums = GroupedSums(["set_id"], {"n": "sum"}, "n", SETS)
        for rows in self._tables.rows("delivery", self._time):
            sums.add(rows)
        counts = {row["set_id"]: row["n"] for row in self._sums("sets of receivers", sums)}
        sets: dict[int, frozenset[str]] = {}
        for rows in self._tables.rows("receiver_sets", self._time):
            named = rows.filter(pc.is_in(rows["set_id"], value_set=pa.array(counts, pa.int64())))
            sets |= {row["set_id"]: frozenset(row["hosts"]) for row in named.to_pylist()}
        deliveries = (Delivery(sets[one], messages) for one, messages in counts.items() if one in sets)
        return tuple(sorted(deliveries, key=lambda one: (-one.messages, sorted(one.hosts))))

    def _recordings(self, start: int, end: int) -> tuple[Recording, ...]:
        """One of each host, from the sessions that touch the period."""
        hosts: dict[str, Recording] = {}
        for rows in self._tables.rows(SESSIONS, TimeRange()):
            for row in rows.to_pylist():
                host, first, last = row["host"], row["start_ts"], row["end_ts"]
                if first >= end or last < start:
                    continue
                old = hosts.get(host, Recording(host, first, last, "", 0, 0))
                hosts[host] = Recording(
                    *(host, min(old.start, first), max(old.end, last)),
                    old.version if old.end > last else row["version"] or "",
                    *(old.socket_drops + (row["socket_drops"] or 0), old.tap_gaps + (row["tap_gaps"] or 0)),
                )
        return tuple(hosts[host] for host in sorted(hosts))

    # -- restarts and silences

    def _runs(self, start: int, end: int) -> tuple[tuple[Start, ...], tuple[Silence, ...]]:
        silences: list[tuple[str, Silence]] = []
        for rows in self._tables.rows("liveness", TimeRange(self._time.start, end)):
            rows = rows.filter(pc.is_null(rows["host"]))
            for row in self._some(rows.append_column("program", _program(rows["src"])), len(silences)):
                if row["from_ts"] < end and (row["to_ts"] is None or row["to_ts"] > start):
                    fields = (row[name] for name in ("program", "from_ts", "to_ts", "kind", "basis"))
                    silences.append((row["src"], Silence(*fields)))
        starts: list[Start] = []
        for rows in self._tables.rows("epochs", self._time, "first_ts"):
            later = rows.filter(pc.not_equal(rows["cause"], "first"))
            rows = later.append_column("jump", _skipped(later))
            kept = self._some(rows, len(starts))
            starts += [Start(row["program"], row["first_ts"], row["cause"], row["jump"]) for row in kept]
        runs: Runs = {}
        silent = pa.array({one.program for _, one in silences}, pa.string())
        for rows in self._tables.rows("epochs", TimeRange(None, end)) if silences else ():
            part = rows.filter(pc.is_in(rows["program"], value_set=silent))
            for row in part.select(["program", "src", "first_ts", "last_ts"]).to_pylist():
                sources = runs.setdefault(row["program"], {})
                first, last = sources.get(row["src"], (row["first_ts"], row["last_ts"]))
                sources[row["src"]] = min(first, row["first_ts"]), max(last, row["last_ts"])
        replaced, merged = merge_runs(silences, runs)
        by_time = attrgetter("at", "program")
        return tuple(sorted([*starts, *replaced], key=by_time)), tuple(merged)

    def _some(self, rows: pa.Table, kept: int) -> Iterable[dict[str, Any]]:
        """Rows up to the limit of what is kept; the others are counted."""
        room = max(RUNS - kept, 0)
        if rows.num_rows > room:
            self._folded["restarts and silences"] = self._folded.get("restarts and silences", 0) + rows.num_rows - room
        return list(rows.slice(0, room).to_pylist())

    # -- traffic

    def _channels(self) -> tuple[tuple[Channel, ...], int]:
        """The busiest first, and the messages of all."""
        how = {"msgs": "sum", "bytes": "sum", "p99_len": "max", "directed": "max"}
        traffic = GroupedSums(["chan", "program"], how, "msgs", CHANNELS)
        minutes = GroupedSums(["chan", "win"], {"msgs": "sum"}, "msgs", CHANNELS)
        for rows in self._tables.rows("channel_traffic", self._time, "win"):
            traffic.add(rows.append_column("program", _program(rows["src"])))
            minutes.add(rows)
        lost = GroupedSums(["chan"], {"due": "sum", "lost": "sum"}, "lost", CHANNELS)
        for rows in self._tables.rows("channel_loss", self._time, "win"):
            gone = pc.add(rows["lost_here"], rows["lost_everywhere"])
            lost.add(rows.append_column("lost", gone).append_column("due", pc.add(gone, rows["seen"])))
        losses = {row["chan"]: (row["due"], row["lost"]) for row in lost.rows()}
        peaks: dict[str, int] = {}
        for row in minutes.rows():
            peaks.setdefault(row["chan"], row["msgs"])
        channels: dict[str, Channel] = {}
        for row in self._sums("pairs of channels and programs", traffic):  # of each, the busiest program comes first
            name, messages = row["chan"], row["msgs"]
            new = Channel(name, 0, 0, 0, False, peaks.get(name, 0), row["program"], messages, *losses.get(name, (0, 0)))
            one = channels.get(name, new)
            channels[name] = one._replace(
                messages=one.messages + messages,
                octets=one.octets + row["bytes"],
                longest=max(one.longest, row["p99_len"]),
                directed=one.directed or bool(row["directed"]),
            )
        ranked = sorted(channels.values(), key=lambda one: (-one.messages, one.name))
        return tuple(ranked), sum(one.messages for one in ranked) + traffic.rest["msgs"]

    def _refusals(self) -> tuple[Refusals, ...]:
        how = {"n": "sum", "first_ts": "min", "last_ts": "max"}
        by_host = GroupedSums(["peer_ip", "verdict", "host"], how, "n", REFUSALS)
        by_name = GroupedSums(["peer_ip", "verdict", "claimed_src"], {"n": "sum"}, "n", REFUSALS)
        for rows in self._tables.rows("integrity", self._time, "win"):
            by_host.add(rows)
            by_name.add(rows.filter(pc.is_valid(rows["claimed_src"])))
        claimed: dict[tuple[str, str], list[str]] = {}
        for row in by_name.rows():
            claimed.setdefault((row["peer_ip"] or "", row["verdict"]), []).append(row["claimed_src"])
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._sums("groups of refused datagrams", by_host):
            groups.setdefault((row["peer_ip"] or "", row["verdict"]), []).append(row)
        refusals = []
        for key, rows in groups.items():
            names = claimed.get(key, [])
            first, last = min(row["first_ts"] for row in rows), max(row["last_ts"] for row in rows)
            most = max(row["n"] for row in rows)
            refusals.append(Refusals(*key, most, len(rows), tuple(names[:CLAIMED]), len(names), first, last))
        return tuple(sorted(refusals, key=lambda one: (-one.datagrams, one.peer, one.verdict)))

    def _clocks(self) -> tuple[Clock, ...]:
        """One for each pair of hosts; over several days the middle is their weighted mean."""
        pairs: dict[tuple[str, str], list[dict[str, int]]] = {}
        for rows in self._tables.rows("skew", self._time):
            for row in rows.to_pylist():
                if row["n"] and row["host"] != row["ref_host"]:
                    pairs.setdefault((row["host"], row["ref_host"]), []).append(row)
        clocks = []
        for pair, days in sorted(pairs.items()):
            weight = sum(day["n"] for day in days)
            middle = round(sum(day["p50_us"] * day["n"] for day in days) / weight)
            low, high = min(day["p05_us"] for day in days), max(day["p95_us"] for day in days)
            clocks.append(Clock(*pair, low, middle, high, weight))
        return tuple(clocks)


def _cut(column: pa.ChunkedArray, pattern: str, replacement: str = "") -> pa.ChunkedArray:
    return pc.replace_substring_regex(column, pattern=pattern, replacement=replacement)


def _program(src: pa.ChunkedArray) -> pa.ChunkedArray:
    """`facts.program_of` of a column."""
    return _cut(src, "(?s)^([^/]*/[^/]*)/.*", r"\1")


def _skipped(rows: pa.Table) -> pa.ChunkedArray:
    """The sequence numbers skipped; none for sources that number by the clock, in microseconds."""
    ahead = pc.subtract(rows["first_key"], pc.subtract(rows["first_ts"], 2**63 - 1))
    by_clock = pc.fill_null(pc.less(pc.abs(ahead), fmt.DAY), False)
    return pc.if_else(by_clock, 0, pc.fill_null(rows["skipped"], 0))


def _by_step(rows: Iterable[Mapping[str, Any]], steps: int) -> dict[str, Course]:
    courses: dict[str, Course] = {}
    lists: dict[str, tuple[list[int], ...]] = {}
    for row in rows:
        columns = lists.setdefault(row["name"], tuple([0] * steps for _ in Course._fields))
        for values, field in zip(columns, Course._fields, strict=True):
            values[min(max(row["step"], 0), steps - 1)] += row[field]
    for name in sorted(lists):
        courses[name] = Course(*map(tuple, lists[name]))
    return courses
