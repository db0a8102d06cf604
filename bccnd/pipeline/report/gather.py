"""Gathers the facts of a report from the tables.

Memory depends on how many pairs of hosts and programs, channels and restarts there are, not on how large the tables
are. What a page does not list is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bccnd.errors import PipelineError
from bccnd.pipeline.lake.delta import DAMAGED, SESSIONS
from bccnd.pipeline.report import facts
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import Course, Facts, Link, Recording, Silence, Start
from bccnd.pipeline.report.table_reader import COLUMNS, NEEDED, Tables, TimeRange

#: steps of the courses over the period
STEPS: Final = 120
#: groups of each kind that are kept
GROUPS: Final = {
    "pairs of hosts and programs": 50_000,
    "restarts and silences": 20_000,
    "sets of receivers": 10_000,
    "pairs of channels and programs": 20_000,
    "groups of refused datagrams": 5_000,
}
_RUNS, _PAIRS = "restarts and silences", "pairs of hosts and programs"
#: rows of partial sums before they are merged
_WAITING: Final = 100_000
#: a program that is back within this time was restarted; one that was away for longer was silent as well
RESTART: Final = 2 * fmt.MINUTE

#: program -> source -> when it was first and last received
_Runs = dict[str, dict[str, tuple[int, int]]]
_Rows = list[dict[str, Any]]


def gather(tables: Tables, time: TimeRange | None = None, progress: Callable[[str], None] = lambda _: None) -> Facts:
    """Raises PipelineError."""
    if NEEDED not in tables.names:
        remedy = "make them with: bccn pipeline build JOURNAL --out TABLES"
        raise PipelineError("no_tables", f"{tables.where}: no tables here: {NEEDED} does not exist", remedy)
    return _Gathering(tables, time or TimeRange()).collect(progress)


class _Gathering:
    def __init__(self, tables: Tables, time: TimeRange) -> None:
        self._tables = tables
        self._time = time
        self._folded: dict[str, int] = {}

    def collect(self, progress: Callable[[str], None]) -> Facts:
        progress("reading loss")
        start, end = self._period()
        step = max(fmt.MINUTE, -(-(end - start) // STEPS // fmt.MINUTE) * fmt.MINUTE)
        links, rest, receivers, sending = self._loss(start, end, step)
        before: dict[str, Course] = {}
        if end - start <= fmt.DAY:
            first, last = start - fmt.DAY, end - fmt.DAY
            before = self._course_before(first, last, step)
        recordings = self._recordings(start, end)
        hosts = {link.host for link in links} | {recording.host for recording in recordings}
        progress("reading restarts, silences and traffic")
        starts, silences = self._runs(start, end)
        channels, messages = self._channels()
        loss = (start, end, step, tuple(sorted(hosts)), links, receivers, sending, before)
        events = (starts, silences, self._delivery(), channels, self._refusals(), self._clocks(), recordings)
        missing = tuple(sorted(set(COLUMNS) - {SESSIONS, DAMAGED} - self._tables.names))
        return Facts(*loss, *events, self._folded, missing, messages, rest, self._damaged())

    def _damaged(self) -> tuple[str, ...]:
        """Return why files of the journal could not be used; each is named there."""
        return tuple(why for rows in self._tables.rows(DAMAGED, TimeRange()) for why in rows["why"].to_pylist())

    def _period(self) -> tuple[int, int]:
        """Return the first and the last minute with data, within the range asked for."""
        ends = [
            pc.min_max(rows["win"]).as_py()
            for table in ("link_loss", "channel_traffic", "integrity")
            for rows in self._tables.rows(table, self._time, ["win"])
            if rows.num_rows
        ]
        if not ends:
            problem = f"{self._tables.where}: these tables have no rows"
            if self._time != TimeRange():
                raise PipelineError("empty", f"{problem} from that time", "name another time with --since and --until")
            raise PipelineError("empty", problem, "check whether anything was recorded")
        first, last = min(bounds["min"] for bounds in ends), max(bounds["max"] for bounds in ends) + fmt.MINUTE
        start, end = self._time.start, self._time.end
        return first if start is None else max(first, start), last if end is None else min(last, end)

    def _grouped(
        self,
        table: str,
        keys: Sequence[str],
        how: Mapping[str, str],
        kept: str,
        prepare: Callable[[pa.Table], pa.Table] = lambda rows: rows,
        time: TimeRange | None = None,
    ) -> _Rows:
        """Group the rows of a table (`Sums`). Return the groups up to the limit ``kept``; the others are counted."""
        sums = Sums(keys, how)
        for rows in self._tables.rows(table, time or self._time):
            sums.add(prepare(rows))
        return self._listed(sums, kept)[0]

    def _listed(self, sums: Sums, kept: str) -> tuple[_Rows, dict[str, int]]:
        """Return the first groups, up to the limit ``kept``, and the sums of the others, which are counted."""
        table, cap = sums.table(), GROUPS[kept]
        beyond = table.slice(cap)
        if not beyond.num_rows:
            return table.to_pylist(), {}
        self._folded[kept] = max(beyond.num_rows, self._folded.get(kept, 0))
        rest = {name: pc.sum(beyond[name]).as_py() or 0 for name, how in sums.how.items() if how == "sum"}
        return table.slice(0, cap).to_pylist(), rest

    # -- loss

    def _loss(
        self, start: int, end: int, step: int
    ) -> tuple[tuple[Link, ...], Link | None, dict[str, Course], dict[str, Course]]:
        """Return loss by pair of receiver and program, and over time by receiving and by sending host."""
        names = Link._fields[2:]
        pairs = Sums(["host", "program"], dict.fromkeys(("weight", *names), "sum"))
        receivers, senders = (Sums([name, "step"], dict.fromkeys(Course._fields, "sum")) for name in ("host", "sender"))
        for rows in self._tables.rows("link_loss", self._time):
            weight = pc.add(pc.multiply(_lost(rows), 1000), rows["expected"])
            pairs.add(_with_program(rows.append_column("weight", weight)))
            by_step = _by_step(rows, start, step)
            receivers.add(by_step)
            senders.add(by_step)
        listed, rest = self._listed(pairs, _PAIRS)
        links = tuple(Link(row["host"], row["program"], *(row[name] for name in names)) for row in listed)
        unlisted = Link("", "", *(rest[name] for name in names)) if rest else None
        return links, unlisted, _courses(receivers, start, end, step), _courses(senders, start, end, step)

    def _course_before(self, start: int, end: int, step: int) -> dict[str, Course]:
        """Return loss over an earlier time by receiving host."""
        receivers = Sums(["host", "step"], dict.fromkeys(Course._fields, "sum"))
        for rows in self._tables.rows("link_loss", TimeRange(start, end)):
            receivers.add(_by_step(rows, start, step))
        return _courses(receivers, start, end, step)

    def _delivery(self) -> tuple[facts.Delivery, ...]:
        rows = self._grouped("delivery", ["set_id"], {"n": "sum"}, "sets of receivers")
        counts = {row["set_id"]: row["n"] for row in rows}
        sets: dict[int, frozenset[str]] = {}
        for part in self._tables.rows("receiver_sets", self._time):
            named = part.filter(pc.is_in(part["set_id"], value_set=pa.array(counts, pa.int64())))
            sets |= {row["set_id"]: frozenset(row["hosts"]) for row in named.to_pylist()}
        deliveries = (facts.Delivery(sets[set_id], messages) for set_id, messages in counts.items() if set_id in sets)
        return tuple(sorted(deliveries, key=lambda delivery: (-delivery.messages, sorted(delivery.hosts))))

    def _recordings(self, start: int, end: int) -> tuple[Recording, ...]:
        """Return one recording of each host, from the sessions that touch the period."""

        def touching(rows: pa.Table) -> pa.Table:
            return rows.filter(pc.and_(pc.less(rows["start_ts"], end), pc.greater_equal(rows["end_ts"], start)))

        how = {"end_ts": "max", "start_ts": "min", "socket_drops": "sum", "tap_gaps": "sum"}
        rows = self._grouped(SESSIONS, ["host"], how, _PAIRS, touching)
        versions = self._grouped(SESSIONS, ["host", "version"], how, _PAIRS, touching)
        latest = {row["host"]: row["version"] or "" for row in reversed(versions)}
        return tuple(
            Recording(
                host, row["start_ts"], row["end_ts"], latest[host], row["socket_drops"] or 0, row["tap_gaps"] or 0
            )
            for host, row in sorted((row["host"], row) for row in rows)
        )

    # -- restarts and silences

    def _runs(self, start: int, end: int) -> tuple[tuple[Start, ...], tuple[Silence, ...]]:
        def silent(rows: pa.Table) -> pa.Table:
            touching = pc.and_(pc.less(rows["from_ts"], end), pc.fill_null(pc.greater(rows["to_ts"], start), True))
            rows = _with_program(rows.filter(pc.and_(pc.is_null(rows["host"]), touching)))
            return rows.append_column("weight", rows["from_ts"])

        def later(rows: pa.Table) -> pa.Table:
            rows = rows.filter(pc.not_equal(rows["cause"], "first"))
            return rows.append_column("jump", _skipped(rows))

        names = ["program", "from_ts", "to_ts", "kind", "basis"]
        time = TimeRange(self._time.start, end)
        rows = self._grouped("liveness", ["src", *names], {"weight": "max"}, _RUNS, silent, time)
        silences = [(row["src"], Silence(*(row[name] for name in names))) for row in rows]
        rows = self._grouped("epochs", ["program", "first_ts", "cause"], {"jump": "max"}, _RUNS, later)
        starts = [Start(row["program"], row["first_ts"], row["cause"], row["jump"]) for row in rows]
        programs = pa.array({silence.program for _, silence in silences}, pa.string())

        def concerned(rows: pa.Table) -> pa.Table:
            return rows.filter(pc.is_in(rows["program"], value_set=programs))

        how = {"last_ts": "max", "first_ts": "min"}
        rows = self._grouped("epochs", ["program", "src"], how, _RUNS, concerned, TimeRange(None, end))
        runs: _Runs = {}
        for row in rows:
            runs.setdefault(row["program"], {})[row["src"]] = row["first_ts"], row["last_ts"]
        replaced, merged = _merge_runs(silences, runs)
        return tuple(sorted([*starts, *replaced], key=attrgetter("at", "program"))), tuple(merged)

    # -- traffic

    def _channels(self) -> tuple[tuple[facts.Channel, ...], int]:
        """Return the channels, the busiest first, and the number of messages in all."""

        def counted(rows: pa.Table) -> pa.Table:
            lost = _lost(rows)
            return rows.append_column("lost", lost).append_column("due", pc.add(lost, rows["seen"]))

        kept = "pairs of channels and programs"
        pairs = Sums(["chan", "program"], {"msgs": "sum", "bytes": "sum", "p99_len": "max"})
        busiest = Sums(["chan"], {"msgs": "max"})
        minutes, day = Sums(["chan", "win"], {"msgs": "sum"}), -1
        for rows in self._tables.rows("channel_traffic", self._time):
            pairs.add(_with_program(rows))
            # All minutes of all days would be too many to keep. Files come day by day.
            of_rows = pc.min(rows["win"]).as_py() or 0
            if of_rows // fmt.DAY != day:
                busiest.add(minutes.table())
                minutes, day = Sums(["chan", "win"], {"msgs": "sum"}), of_rows // fmt.DAY
            minutes.add(rows)
        busiest.add(minutes.table())
        traffic, rest = self._listed(pairs, kept)
        peaks = {row["chan"]: row["msgs"] for row in busiest.table().to_pylist()}
        losses = self._grouped("channel_loss", ["chan"], {"lost": "sum", "due": "sum"}, kept, counted)
        lost = {row["chan"]: (row["due"], row["lost"]) for row in losses}
        channels: dict[str, facts.Channel] = {}
        for row in traffic:  # of each channel, the busiest program comes first
            name, count = row["chan"], row["msgs"]
            new = facts.Channel(name, 0, 0, 0, peaks.get(name, 0), row["program"], count, *lost.get(name, (0, 0)))
            channel = channels.get(name, new)
            longest = max(channel.longest, row["p99_len"])
            channels[name] = channel._replace(
                messages=channel.messages + count, octets=channel.octets + row["bytes"], longest=longest
            )
        ranked = sorted(channels.values(), key=lambda channel: (-channel.messages, channel.name))
        return tuple(ranked), sum(channel.messages for channel in ranked) + rest.get("msgs", 0)

    def _refusals(self) -> tuple[facts.Refusals, ...]:
        how = {"n": "sum", "first_ts": "min", "last_ts": "max"}
        kept = "groups of refused datagrams"
        by_host, by_name = (Sums(["peer_ip", "verdict", name], how) for name in ("host", "claimed_src"))
        for rows in self._tables.rows("integrity", self._time):
            by_host.add(rows)
            by_name.add(rows)
        hosts, names = defaultdict[tuple[str, str], _Rows](list), defaultdict[tuple[str, str], list[str]](list)
        for row in self._listed(by_host, kept)[0]:
            hosts[row["peer_ip"] or "", row["verdict"]].append(row)
        for row in self._listed(by_name, kept)[0]:
            if row["claimed_src"] is not None:
                names[row["peer_ip"] or "", row["verdict"]].append(row["claimed_src"])
        refusals = []
        for key, of_key in hosts.items():
            first, last = min(row["first_ts"] for row in of_key), max(row["last_ts"] for row in of_key)
            claimed = tuple(names[key][:3])
            refusals.append(facts.Refusals(*key, of_key[0]["n"], len(of_key), claimed, len(names[key]), first, last))
        return tuple(sorted(refusals, key=lambda refused: (-refused.datagrams, refused.peer, refused.verdict)))

    def _clocks(self) -> tuple[facts.Clock, ...]:
        """Return one comparison of each pair of hosts; over several days the middle is their weighted mean."""

        def weighted(rows: pa.Table) -> pa.Table:
            kept = rows.filter(pc.and_(pc.not_equal(rows["host"], rows["ref_host"]), pc.greater(rows["n"], 0)))
            return kept.append_column("sum", pc.multiply(kept["p50_us"], kept["n"]))

        how = {"n": "sum", "sum": "sum", "p05_us": "min", "p95_us": "max"}
        rows = self._grouped("skew", ["host", "ref_host"], how, _PAIRS, weighted)
        names = ("host", "ref_host", "p05_us", "middle", "p95_us", "n")
        middles = (row | {"middle": round(row["sum"] / row["n"])} for row in rows)
        return tuple(sorted(facts.Clock(*(row[name] for name in names)) for row in middles))


def _merge_runs(silences: Iterable[tuple[str, Silence]], runs: _Runs) -> tuple[set[Start], list[Silence]]:
    """Return the starts of processes that replaced others, and the silences of programs, from those of sources.

    A source is one process (`host/program/pid`). A program is silent only while none of its sources sends: an old
    process that a new one replaces is a restart.
    """
    starts: set[Start] = set()
    merged: dict[tuple[str, str, str, int | None], Silence] = {}
    for src, silence in silences:
        other_runs = [run for name, run in runs.get(silence.program, {}).items() if name != src]
        # the others count that were received until the silence ended or, if it did not end, after it began
        if any(first <= silence.start < last and last >= (silence.end or last) for first, last in other_runs):
            continue
        successor = min((first for first, _ in other_runs if first > silence.start), default=None)
        if silence.end is None and successor is not None:
            if silence.basis == "heartbeat" or silence.kind == "host_down":
                starts.add(Start(silence.program, successor, "replaced"))
            if silence.kind == "open" and (silence.basis != "heartbeat" or successor < silence.start + RESTART):
                continue
            silence = silence._replace(kind="gap" if silence.kind == "open" else silence.kind, end=successor)
        # Processes of one program that end together are one silence; of those that end for good, the last counts.
        key = silence.program, silence.kind, silence.basis, silence.end
        merged[key] = max(silence, merged.get(key, silence), key=attrgetter("start"))
    return starts, sorted(merged.values(), key=attrgetter("start", "program"))


class Sums:
    """Groups rows of many batches and aggregates the columns of ``how`` (sum, min or max). What it keeps grows with the
    groups, not with the rows."""

    def __init__(self, keys: Sequence[str], how: Mapping[str, str]) -> None:
        self.keys, self.how = list(keys), dict(how)
        self._parts: list[pa.Table] = []

    def add(self, batch: pa.Table) -> None:
        if batch.num_rows:
            self._parts.append(self._aggregate(batch))
        waiting = sum(part.num_rows for part in self._parts[1:])
        if waiting > max(_WAITING, *(part.num_rows for part in self._parts[:1]), 0):
            self._parts = [self._aggregate(pa.concat_tables(self._parts))]

    def table(self) -> pa.Table:
        """Return the groups, those with the greatest first column first."""
        if not self._parts:
            return pa.table({name: pa.array([], pa.int64()) for name in (*self.keys, *self.how)})
        order = [(next(iter(self.how)), "descending"), *((key, "ascending") for key in self.keys)]
        return self._aggregate(pa.concat_tables(self._parts)).sort_by(order)

    def _aggregate(self, table: pa.Table) -> pa.Table:
        sums = table.group_by(self.keys, use_threads=False).aggregate(list(self.how.items()))
        names = [*self.keys, *(f"{name}_{function}" for name, function in self.how.items())]
        return sums.select(names).rename_columns([*self.keys, *self.how])


def _by_step(rows: pa.Table, start: int, step: int) -> pa.Table:
    """Return what courses are made of, without a host's own messages."""
    sender = _cut(rows["src"], "(?s)/.*")
    counts = {
        "host": rows["host"],
        "sender": sender,
        "step": pc.divide(pc.subtract(rows["win"], start), step),
        "due": pc.subtract(rows["expected"], rows["not_listening"]),
        "lost": _lost(rows),
        "absent": rows["not_listening"],
    }
    return pa.table(counts).filter(pc.not_equal(sender, rows["host"]))


def _courses(sums: Sums, start: int, end: int, step: int) -> dict[str, Course]:
    """Return loss over time by the first key of some sums."""
    steps = max(-(-(end - start) // step), 1)
    lists: dict[str, list[list[int]]] = {}
    for row in sums.table().to_pylist():
        columns = lists.setdefault(row[sums.keys[0]], [[0] * steps for _ in sums.how])
        for values, name in zip(columns, sums.how, strict=True):
            values[min(max(row["step"], 0), steps - 1)] += row[name]
    return {name: Course(*map(tuple, lists[name])) for name in sorted(lists)}


def _cut(column: pa.ChunkedArray, pattern: str, replacement: str = "") -> pa.ChunkedArray:
    return pc.replace_substring_regex(column, pattern=pattern, replacement=replacement)


def _with_program(rows: pa.Table) -> pa.Table:
    """Append `host/program` of the sources, without process id and tag, as the table epochs has it."""
    return rows.append_column("program", _cut(rows["src"], "(?s)^([^/]*/[^/]*)/.*", r"\1"))


def _lost(rows: pa.Table) -> pa.ChunkedArray:
    return pc.add(rows["lost_here"], rows["lost_everywhere"])


def _skipped(rows: pa.Table) -> pa.ChunkedArray:
    """Return the sequence numbers skipped; none for sources that number by the clock, in microseconds."""
    ahead = pc.subtract(rows["first_key"], pc.subtract(rows["first_ts"], 2**63 - 1))
    by_clock = pc.fill_null(pc.less(pc.abs(ahead), fmt.DAY), False)
    return pc.if_else(by_clock, 0, pc.fill_null(rows["skipped"], 0))
