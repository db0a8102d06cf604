"""Tables -> facts, read in batches.

Law: memory depends on how much a page can show and not on how large the tables are; what is left out is counted. Rows
of other days than those asked for are not read. Whatever lies there that is no table of ours is named in one line.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.errors import PipelineError
from bccnd.journal import files, layout
from bccnd.pipeline.report import words
from bccnd.pipeline.report.columns import host_of, micros, present, skipped
from bccnd.pipeline.report.facts import Channel, Clock, Course, Delivery, Epoch, Facts, Link, Refusals, Silence
from bccnd.pipeline.report.tally import Tally

#: what is read of each table, and of which kind it must be
READ: Final[Mapping[str, Mapping[str, str]]] = {
    "host_dim": {"host": "text", "bit": "number"},
    "link_loss": {
        **dict.fromkeys(("host", "src"), "text"),
        "win": "time",
        **dict.fromkeys(
            (
                *("expected", "any_seen", "seen", "lost_here", "lost_everywhere", "not_listening", "dup"),
                "late",
            ),
            "number",
        ),
    },
    "messages": {"first_ts": "time"},
    "epochs": {
        "src": "text",
        "epoch": "number",
        "first_ts": "time",
        "last_ts": "time",
        "cause": "text",
        **dict.fromkeys(("hosts", "first_key", "skipped"), "number"),
    },
    "delivery": {"seen_by": "number", "n": "number"},
    "liveness": {
        **dict.fromkeys(("host", "src", "kind", "basis"), "text"),
        "from_ts": "time",
        "to_ts": "time",
    },
    "channel_traffic": {
        **dict.fromkeys(("chan", "src"), "text"),
        "win": "time",
        **dict.fromkeys(("msgs", "bytes", "p99_len"), "number"),
        "directed": "flag",
    },
    "integrity": {
        **dict.fromkeys(("host", "peer_ip", "claimed_src", "verdict"), "text"),
        "win": "time",
        "n": "number",
        "first_ts": "time",
        "last_ts": "time",
    },
    "skew": {
        **dict.fromkeys(("host", "ref_host"), "text"),
        **dict.fromkeys(("p05_us", "p50_us", "p95_us", "n"), "number"),
    },
}
#: without these there is nothing to report
NEEDED: Final = ("host_dim", "link_loss")

_KINDS: Final[Mapping[str, Callable[[pa.DataType], bool]]] = {
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind),
    "number": pa.types.is_integer,
    "time": pa.types.is_timestamp,
    "flag": pa.types.is_boolean,
}

#: rows that are in memory at a time
_BATCH: Final = 65_536
#: pairs of a receiver and a sender that are told apart
LINKS: Final = 50_000
#: steps of the courses over the period
STEPS: Final = 120
#: groups of sending hosts and steps
COURSES: Final = 500_000
#: epochs that did not begin as the first one, silences, sets of receivers, channels, refused groups that are kept
EPOCHS: Final = 20_000
SILENCES: Final = 20_000
SETS: Final = 10_000
CHANNELS: Final = 20_000
REFUSALS: Final = 5_000
#: channels and sets that a page has room for
SHOWN: Final = 25
#: names claimed by one address that are kept
CLAIMED: Final = 3

_Key = TypeVar("_Key")
_DAY: Final = re.compile(r"day=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_WINDOW: Final = words.MINUTE
_REMEDY: Final = "make them anew with: bccn pipeline build JOURNAL --out TABLES"


@dataclass(frozen=True)
class Wanted:
    """The time asked for, in microseconds since 1970; None: as far as there is anything."""

    start: int | None = None
    end: int | None = None

    def has_day(self, day: str) -> bool:
        first = int(datetime.datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()) * words.SECOND
        return (self.start is None or first + words.DAY > self.start) and (self.end is None or first < self.end)


class Tables:
    """The tables below a folder or URI. Raises PipelineError: no_tables, foreign, unreadable."""

    def __init__(self, where: str) -> None:
        self.where = where
        try:
            self._files, self._root = files.open_root(where)
            found = self._files.get_file_info(self._root)
        except (pa.ArrowException, OSError) as error:
            raise PipelineError(
                "unreadable", f"{where}: {_first_line(error)}", "see that it is there and may be read"
            ) from error
        if found.type != pafs.FileType.Directory:
            what = "there is no such folder" if found.type == pafs.FileType.NotFound else "it is no folder"
            raise PipelineError(
                "no_tables", f"{where}: {what}", "name the folder that bccn pipeline build has written, or a journal"
            )
        self.names = {
            info.base_name
            for info in self._files.get_file_info(pafs.FileSelector(self._root))
            if info.type == pafs.FileType.Directory
        }

    @property
    def is_journal(self) -> bool:
        return layout.OBS in self.names and not set(NEEDED) & self.names

    def days(self, table: str, wanted: Wanted) -> list[tuple[str, list[str]]]:
        """The files of a table by day, in order."""
        if table not in self.names:
            return []
        days: dict[str, list[str]] = {}
        selector = pafs.FileSelector(f"{self._root}/{table}", recursive=True)
        for info in self._files.get_file_info(selector):
            inside = info.path[len(self._root) + 1 :].split("/")
            if not info.path.endswith(".parquet") or any(part.startswith((".", "_")) for part in inside):
                continue
            day = _DAY.fullmatch(inside[1])
            if day is not None and len(inside) == 3 and wanted.has_day(day[1]):
                days.setdefault(day[1], []).append(info.path)
        return [(day, sorted(paths)) for day, paths in sorted(days.items())]

    def batches(self, table: str, paths: Sequence[str], time: str | None, wanted: Wanted) -> Iterator[pa.Table]:
        """Rows of files of a table with the columns that are read, in batches; ``time`` is the column by which those
        outside of the time asked for are left out."""
        kinds = READ[table]
        for path in paths:
            with self._file(table, path) as file:
                names = [*kinds]
                if table == "delivery":
                    names += [name for name in file.schema_arrow.names if re.fullmatch(r"seen_by_\d+", name)]
                # one row group after the other, and of it so many rows at a time
                for batch in file.iter_batches(batch_size=_BATCH, columns=names, use_threads=False):
                    yield _within(_usual(pa.Table.from_batches([batch]), kinds), time, wanted)

    def count(self, table: str, paths: Sequence[str], time: str, wanted: Wanted) -> int:
        """Rows of files; without a limit of time no more than their ends are read."""
        rows = 0
        for path in paths:
            if wanted == Wanted():
                with self._file(table, path) as file:
                    rows += file.metadata.num_rows
            else:
                rows += sum(part.num_rows for part in self.batches(table, [path], time, wanted))
        return rows

    @contextmanager
    def _file(self, table: str, path: str) -> Iterator[pq.ParquetFile]:
        try:
            with pq.ParquetFile(path, filesystem=self._files) as file:
                self._check(table, path, file.schema_arrow)
                yield file
        except FileNotFoundError as error:
            raise PipelineError(
                "renewed", f"{path} went away: these tables are being made anew", "try again in a moment"
            ) from error
        except (pa.ArrowException, OSError) as error:
            raise PipelineError("foreign", f"{path} cannot be read: {_first_line(error)}", _REMEDY) from error

    def _check(self, table: str, path: str, schema: pa.Schema) -> None:
        for name, kind in READ[table].items():
            place = schema.get_field_index(name)
            if place < 0 or not _KINDS[kind](schema.field(place).type):
                what = f"has no column {name}" if place < 0 else f"has {name} as {schema.field(place).type}"
                raise PipelineError("foreign", f"{path} is no part of the table {table}: it {what}", _REMEDY)


def _usual(rows: pa.Table, kinds: Mapping[str, str]) -> pa.Table:
    """Whoever wrote a file: texts are of one type, and numbers are."""
    for place, name in enumerate(rows.column_names):
        kind = {"text": pa.string(), "number": pa.int64()}.get(kinds.get(name, ""))
        if kind is not None and rows.schema.field(name).type != kind:
            rows = rows.set_column(place, name, pc.cast(rows[name], kind))
    return rows


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _within(rows: pa.Table, time: str | None, wanted: Wanted) -> pa.Table:
    """Rows of the time asked for."""
    if time is None or wanted == Wanted():
        return rows
    at = micros(rows[time])
    if wanted.start is not None:
        rows = rows.filter(pc.greater_equal(at, wanted.start))
        at = micros(rows[time])
    return rows if wanted.end is None else rows.filter(pc.less(at, wanted.end))


def gather(tables: Tables, wanted: Wanted | None = None, progress: Callable[[str], None] = lambda _: None) -> Facts:
    """All that the page tells. Raises PipelineError."""
    return _Gathering(tables, wanted or Wanted(), progress).facts()


class _Gathering:
    def __init__(self, tables: Tables, wanted: Wanted, progress: Callable[[str], None]) -> None:
        self._tables = tables
        self._wanted = wanted
        self._progress = progress
        self._folded: dict[str, int] = {}
        lacking = [name for name in NEEDED if name not in tables.names]
        if lacking:
            raise PipelineError(
                "no_tables",
                f"{tables.where}: no tables here: {' and '.join(lacking)} "
                f"{'is' if len(lacking) == 1 else 'are'} not there",
                "make them with: bccn pipeline build JOURNAL --out TABLES",
            )

    def facts(self) -> Facts:
        self._progress("looking for the period")
        start, end = self._period()
        step = max(_WINDOW, -(-(end - start) // STEPS // _WINDOW) * _WINDOW)
        hosts = self._hosts()
        links, rest = self._links()
        receivers, sending = self._courses(start, end, step)
        channels, traffic, names = self._channels()
        return Facts(
            start=start,
            end=end,
            step=step,
            hosts=tuple(sorted({host for names_of in hosts.values() for host in names_of.values()})),
            senders=len({link.sender for link in links}),
            messages=self._messages(),
            links=links,
            receivers=receivers,
            sending=sending,
            epochs=self._epochs(),
            silences=self._silences(end),
            delivery=self._delivery(hosts),
            channels=channels,
            refusals=self._refusals(),
            clocks=self._clocks(),
            folded=self._folded,
            missing=tuple(sorted(set(READ) - self._tables.names)),
            all_messages=traffic,
            all_channels=names,
            rest=rest,
        )

    def _rows(self, table: str, time: str | None) -> Iterator[pa.Table]:
        for _, paths in self._tables.days(table, self._wanted):
            yield from self._tables.batches(table, paths, time, self._wanted)

    def _keep(self, name: str, tally: Tally) -> list[dict[str, Any]]:
        rows = tally.rows()
        if tally.folded:
            self._folded[name] = tally.folded
        return rows

    def _period(self) -> tuple[int, int]:
        """From the first to the last minute of which anything is known."""
        low: list[int] = []
        high: list[int] = []
        for table in ("link_loss", "channel_traffic", "integrity"):
            for rows in self._rows(table, "win"):
                if rows.num_rows:
                    ends = pc.min_max(micros(rows["win"])).as_py()
                    if ends["min"] is not None:
                        low.append(ends["min"])
                        high.append(ends["max"])
        if not low:
            asked = self._wanted.start is not None or self._wanted.end is not None
            raise PipelineError(
                "empty",
                f"{self._tables.where}: there is nothing in these tables" + (" from that time" if asked else ""),
                "name another time with --from and --to" if asked else "see whether anything was recorded",
            )
        start, end = min(low), max(high) + _WINDOW
        wanted = self._wanted
        return (
            start if wanted.start is None else max(start, wanted.start),
            end if wanted.end is None else min(end, wanted.end),
        )

    def _hosts(self) -> dict[str, dict[int, str]]:
        """For each day, which host a bit of its masks stands for."""
        days: dict[str, dict[int, str]] = {}
        for day, paths in self._tables.days("host_dim", self._wanted):
            for rows in self._tables.batches("host_dim", paths, None, self._wanted):
                days.setdefault(day, {}).update(
                    zip(rows["bit"].to_pylist(), (str(one) for one in rows["host"].to_pylist()), strict=True)
                )
        return days

    def _messages(self) -> int:
        return sum(
            self._tables.count("messages", paths, "first_ts", self._wanted)
            for _, paths in self._tables.days("messages", self._wanted)
        )

    def _links(self) -> tuple[tuple[Link, ...], Link | None]:
        self._progress("who lost what of whom")
        columns = Link._fields[2:]
        tally = Tally(["host", "src"], {**dict.fromkeys(columns, "sum"), "weight": "sum"}, "weight", LINKS)
        for rows in map(present, self._rows("link_loss", "win")):
            # Who lost much is kept before who sent much.
            weight = pc.add(pc.multiply(pc.add(rows["lost_here"], rows["lost_everywhere"]), 1000), rows["expected"])
            tally.add(rows.drop_columns(["win"]).append_column("weight", weight))
        kept = self._keep("pairs of hosts and senders", tally)
        links = [Link(row["host"], row["src"], *(row[name] for name in columns)) for row in kept]
        # One line for all others, so that sums stay true.
        rest = Link("", "", *(tally.rest[name] for name in columns)) if tally.folded else None
        return tuple(links), rest

    def _courses(self, start: int, end: int, step: int) -> tuple[dict[str, Course], dict[str, Course]]:
        self._progress("when it was lost")
        steps = max(-(-(end - start) // step), 1)
        how = {"due": "sum", "lost": "sum", "absent": "sum"}
        by_host, by_sender = (Tally(["who", "step"], how, "due", COURSES) for _ in range(2))
        for rows in map(present, self._rows("link_loss", "win")):
            place = pc.divide(pc.subtract(micros(rows["win"]), start), step)
            due = pc.subtract(rows["expected"], rows["not_listening"])
            lost = pc.add(rows["lost_here"], rows["lost_everywhere"])
            sender = host_of(rows["src"])
            both = {"step": place, "due": due, "lost": lost, "absent": rows["not_listening"]}
            # what hosts hear of themselves has not been on its way
            others = pc.not_equal(sender, rows["host"])
            by_host.add(pa.table({"who": rows["host"], **both}).filter(others))
            by_sender.add(pa.table({"who": sender, **both}).filter(others))
        return (
            _courses(self._keep("hosts over time", by_host), steps),
            _courses(self._keep("sending hosts over time", by_sender), steps),
        )

    def _epochs(self) -> tuple[Epoch, ...]:
        """Those that are no first ones: first ones are as many as senders."""
        found: list[Epoch] = []
        more = 0
        for rows in self._rows("epochs", "first_ts"):
            told = rows.filter(pc.not_equal(rows["cause"], "first"))
            room = max(EPOCHS - len(found), 0)
            more += max(told.num_rows - room, 0)
            part = told.slice(0, room)
            columns = [part[name] for name in ("src", "epoch")]
            columns += [micros(part[name]) for name in ("first_ts", "last_ts")]
            columns += [part["cause"], part["hosts"], skipped(part)]
            found.extend(Epoch(*row) for row in zip(*(one.to_pylist() for one in columns), strict=True))
        if more:
            self._folded["restarts"] = more
        return tuple(sorted(found, key=lambda one: (one.first, one.src)))

    def _silences(self, end: int) -> tuple[Silence, ...]:
        self._progress("who fell silent")
        found: list[Silence] = []
        more = 0
        for _, paths in self._tables.days("liveness", self._wanted):
            for rows in self._tables.batches("liveness", paths, None, self._wanted):
                room = max(SILENCES - len(found), 0)
                more += max(rows.num_rows - room, 0)
                part = rows.slice(0, room)
                columns = [part["host"], part["src"], micros(part["from_ts"]), micros(part["to_ts"])]
                columns += [part["kind"], part["basis"]]
                found.extend(Silence(*row) for row in zip(*(one.to_pylist() for one in columns), strict=True))
        if more:
            self._folded["silences"] = more
        start = self._wanted.start
        return tuple(
            sorted(
                (one for one in found if one.start < end and (start is None or one.end is None or one.end > start)),
                key=lambda one: (one.start, one.src, one.host or ""),
            )
        )

    def _delivery(self, hosts: Mapping[str, Mapping[int, str]]) -> tuple[Delivery, ...]:
        self._progress("which hosts received the same")
        sets: dict[frozenset[str], int] = {}
        left_out = 0
        for day, paths in self._tables.days("delivery", self._wanted):
            masks: dict[tuple[int, ...], int] = {}
            for rows in self._tables.batches("delivery", paths, None, self._wanted):
                names = sorted((name for name in rows.column_names if name.startswith("seen_by")), key=_word)
                grouped = rows.group_by(names, use_threads=False).aggregate([("n", "sum")])
                for row in zip(*(grouped[name].to_pylist() for name in (*names, "n_sum")), strict=True):
                    key = tuple(int(word or 0) for word in row[:-1])
                    masks[key] = masks.get(key, 0) + int(row[-1])
                masks, gone = _largest(masks)
                left_out += gone
            bits = hosts.get(day, {})
            for mask, messages in masks.items():
                who = frozenset(bits.get(bit, f"bit {bit}") for bit in _bits(mask))
                sets[who] = sets.get(who, 0) + messages
            sets, gone = _largest(sets)
            left_out += gone
        if left_out:
            self._folded["sets of receivers"] = left_out
        ranked = sorted(sets.items(), key=lambda one: (-one[1], sorted(one[0])))
        return tuple(Delivery(who, count) for who, count in ranked)

    def _channels(self) -> tuple[tuple[Channel, ...], int, int]:
        self._progress("which channels are busy")
        how = {"msgs": "sum", "bytes": "sum", "p99_len": "max", "directed": "max"}
        tally = Tally(["chan", "src"], how, "msgs", CHANNELS)
        minutes = Tally(["chan", "win"], {"msgs": "sum"}, "msgs", CHANNELS)
        for rows in self._rows("channel_traffic", "win"):
            flags = rows.set_column(
                rows.schema.get_field_index("directed"), "directed", pc.cast(rows["directed"], pa.int8())
            )
            tally.add(flags.select(["chan", "src", *how]))
            minutes.add(rows.select(["chan", "win", "msgs"]))
        peaks: dict[str, int] = {}
        for row in minutes.rows():
            peaks[row["chan"]] = max(peaks.get(row["chan"], 0), row["msgs"])
        channels: dict[str, Channel] = {}
        whole = tally.rest["msgs"]
        for row in self._keep("pairs of channels and senders", tally):  # the busiest sender of each comes first
            whole += row["msgs"]
            one = channels.get(row["chan"])
            if one is None:
                channels[row["chan"]] = Channel(
                    row["chan"],
                    row["msgs"],
                    row["bytes"],
                    row["p99_len"],
                    bool(row["directed"]),
                    peaks.get(row["chan"], 0),
                    row["src"],
                    row["msgs"],
                )
            else:
                channels[row["chan"]] = one._replace(
                    messages=one.messages + row["msgs"],
                    octets=one.octets + row["bytes"],
                    longest=max(one.longest, row["p99_len"]),
                    directed=one.directed or bool(row["directed"]),
                )
        ranked = sorted(channels.values(), key=lambda one: (-one.messages, one.name))
        return tuple(ranked), whole, len(channels)

    def _refusals(self) -> tuple[Refusals, ...]:
        self._progress("who was refused")
        how = {"n": "sum", "first": "min", "last": "max"}
        tally = Tally(["peer_ip", "verdict", "host"], how, "n", REFUSALS)
        names = Tally(["peer_ip", "verdict", "claimed_src"], {"n": "sum"}, "n", REFUSALS)
        for rows in self._rows("integrity", "win"):
            times = {"first": micros(rows["first_ts"]), "last": micros(rows["last_ts"])}
            plain = rows.select(["peer_ip", "verdict", "host", "claimed_src", "n"])
            for name, column in times.items():
                plain = plain.append_column(name, column)
            tally.add(plain.select(["peer_ip", "verdict", "host", *how]))
            named = plain.filter(pc.is_valid(plain["claimed_src"]))
            names.add(named.select(["peer_ip", "verdict", "claimed_src", "n"]))
        claimed: dict[tuple[str, str], list[str]] = {}
        for row in names.rows():
            claimed.setdefault((row["peer_ip"] or "", row["verdict"]), []).append(row["claimed_src"])
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self._keep("groups of refused datagrams", tally):
            groups.setdefault((row["peer_ip"] or "", row["verdict"]), []).append(row)
        found = [
            Refusals(
                peer,
                verdict,
                max(row["n"] for row in rows),
                len(rows),
                tuple(claimed.get((peer, verdict), [])[:CLAIMED]),
                len(claimed.get((peer, verdict), [])),
                min(row["first"] for row in rows),
                max(row["last"] for row in rows),
            )
            for (peer, verdict), rows in groups.items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.datagrams, one.peer, one.verdict)))

    def _clocks(self) -> tuple[Clock, ...]:
        """One for each pair of hosts: over several days the middle is their mean, weighted."""
        groups: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
        for _, paths in self._tables.days("skew", self._wanted):
            for rows in self._tables.batches("skew", paths, None, self._wanted):
                for row in rows.to_pylist():
                    if row["n"] and row["host"] != row["ref_host"]:
                        groups.setdefault((row["host"], row["ref_host"]), []).append(
                            (row["p05_us"], row["p50_us"], row["p95_us"], row["n"])
                        )
        found = []
        for (host, against), days in sorted(groups.items()):
            pairs = sum(one[3] for one in days)
            middle = round(sum(one[1] * one[3] for one in days) / pairs)
            found.append(Clock(host, against, min(one[0] for one in days), middle, max(one[2] for one in days), pairs))
        return tuple(found)


def _courses(rows: Sequence[Mapping[str, Any]], steps: int) -> dict[str, Course]:
    found: dict[str, tuple[list[int], list[int], list[int]]] = {}
    for row in rows:
        lists = found.setdefault(row["who"], ([0] * steps, [0] * steps, [0] * steps))
        place = min(max(row["step"], 0), steps - 1)
        for values, name in zip(lists, ("due", "lost", "absent"), strict=True):
            values[place] += row[name]
    return {who: Course(*(tuple(one) for one in lists)) for who, lists in sorted(found.items())}


def _word(name: str) -> int:
    """Which word of a mask a column is."""
    return int(name.removeprefix("seen_by").removeprefix("_") or 0)


def _bits(mask: Sequence[int], word: int = 63) -> list[int]:
    """The bits that are set, over all words of a mask."""
    return [word * place + bit for place, value in enumerate(mask) for bit in range(word) if value >> bit & 1]


def _largest(counts: dict[_Key, int]) -> tuple[dict[_Key, int], int]:
    """The most frequent ones, when there are far more of them; and how many others there were."""
    if len(counts) <= 2 * SETS:
        return counts, 0
    ranked = sorted(counts.items(), key=lambda one: -one[1])
    return dict(ranked[:SETS]), len(ranked) - SETS
