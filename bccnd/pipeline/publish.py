"""What crossed a threshold in the tables, found without Spark, and what of it is news.

Law: what was said once is not said again, unless it got worse by half or had been over in between; what was said is
written down only after the bus has taken it. Tables are read in pieces, and only the columns and days that matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from bccnd.errors import PipelineError
from bccnd.journal import files

#: what was said, beside the tables; names that begin with ``_`` are left alone by who reads Parquet folders
STATE: Final = "_state/published.json"
#: a finding is news again when it has become so many times worse
WORSE: Final = 1.5
#: findings in one run; the worst of each kind come first
MOST: Final = 1000
#: characters of a channel in a message, which must fit into a datagram
_MAX_CHAN: Final = 200
#: rows read at once
_BATCH: Final = 65_536
#: a source may have lost so few messages that its share says nothing: messages that must have been due
LEAST_DUE: Final = 100
#: rows of sums that wait to be added to each other, some 50 MB
_PARTS: Final = 1_000_000
_US: Final = 1_000_000
_TIME: Final = pa.timestamp("us", tz="UTC")

#: kind -> what is told of when it is above this, by default
RULES: Final[Mapping[str, float]] = {
    # share of what a receiver should have heard of a source and did not, though others did
    "loss": 0.01,
    # the same of what nobody heard: it was lost at the sender or on the segment
    "lost_everywhere": 0.01,
    # seconds for which a source has been silent when the data end
    "dead": 0.0,
    # how often a source began its numbers anew, on those days
    "restarts": 3.0,
    # datagrams whose check was missing, unknown or wrong, on those days, from one sender
    "integrity": 10.0,
    # seconds between two hosts' clocks
    "skew": 1.0,
    # messages a second on a channel, over a minute
    "flood": 1000.0,
}


@dataclass(frozen=True)
class Finding:
    """Something that crossed a threshold: whose it is, by how much, and when (microseconds since 1970)."""

    kind: str
    value: float
    threshold: float
    host: str | None = None
    src: str | None = None
    chan: str | None = None
    first: int = 0
    last: int = 0

    @property
    def name(self) -> str:
        """What makes it the same one in another run."""
        return json.dumps([self.kind, self.host, self.src, self.chan])

    def message(self) -> bytes:
        """One small JSON object; ``id`` tells one that came twice."""
        of = {"host": self.host, "src": self.src, "chan": self.chan and self.chan[:_MAX_CHAN]}
        found: dict[str, Any] = {"kind": self.kind, **{key: value for key, value in of.items() if value is not None}}
        found |= {"value": round(self.value, 6), "threshold": self.threshold}
        found |= {"from": _iso(self.first), "to": _iso(self.last)}
        found["id"] = hashlib.sha256(f"{self.name}{self.value}{self.last}".encode()).hexdigest()[:16]
        return json.dumps(found, separators=(",", ":")).encode()


def _iso(ts: int) -> str:
    text: str = pa.scalar(ts, pa.int64()).cast(_TIME).as_py().strftime("%Y-%m-%dT%H:%M:%SZ")
    return text


# -- reading


class Tables:
    """The tables below a root, of which any may be missing; ``days`` of each, the latest, count."""

    def __init__(self, where: str, days: int) -> None:
        """Raises PipelineError: no_tables."""
        try:
            self.filesystem, self.root = files.open_root(where)
            there = {one.base_name for one in self.filesystem.get_file_info(pafs.FileSelector(self.root))}
        except (OSError, pa.ArrowInvalid) as error:
            raise no_tables(where, str(error).splitlines()[0]) from error
        if not there & set(_READERS):
            raise no_tables(where, f"none of {', '.join(sorted(_READERS))} is there")
        self._where = where
        self._days = days

    def rows(
        self, table: str, columns: Sequence[str], *, kept: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a table, times as microseconds; of its latest days or, with ``kept``, whatever fits. Raises
        PipelineError: bad_table."""
        folder = f"{self.root}/{table}"
        found = self.filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        days = sorted(one.base_name for one in found if one.base_name.startswith("day="))
        for day in days if kept is not None else days[-self._days :]:
            try:
                data = ds.dataset(f"{folder}/{day}", filesystem=self.filesystem, format="parquet")
                if not data.files:
                    continue
                for batch in data.to_batches(columns=list(columns), filter=kept, batch_size=_BATCH, use_threads=False):
                    yield _timed(batch)
            except (OSError, pa.ArrowInvalid, KeyError) as error:
                raise PipelineError(
                    "bad_table",
                    f"{table}/{day} of {self._where} cannot be read: {str(error).splitlines()[0]}",
                    "make the tables anew: bccn pipeline build",
                ) from error


def no_tables(where: str, why: str) -> PipelineError:
    return PipelineError(
        "no_tables", f"no tables at {where}: {why}", "make them: bccn pipeline build JOURNAL --out DIR"
    )


def _timed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as microseconds since 1970, whatever Spark has written."""
    arrays = [
        column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


class _Sums:
    """Numbers by key, added up batch by batch, with the first and the last time; as compact as the tables are."""

    def __init__(self, keys: Sequence[str], sums: Sequence[str], first: str, last: str) -> None:
        self._keys = list(keys)
        self._sums = list(sums)
        self._names = [*keys, *sums, "first", "last"]
        self._span = (first, last)
        self._parts: list[pa.Table] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        first, last = self._span
        table = pa.Table.from_batches([batch])
        columns = [table.column(name) for name in (*self._keys, *self._sums, first, last)]
        self._keep(pa.Table.from_arrays(columns, names=self._names))
        if self._rows > _PARTS:
            self._merge()

    def _keep(self, table: pa.Table) -> None:
        wanted = [*((name, "sum") for name in self._sums), ("first", "min"), ("last", "max")]
        made = table.group_by(self._keys, use_threads=False).aggregate(wanted)
        columns = [made.column(name) for name in self._keys] + [made.column(f"{name}_{what}") for name, what in wanted]
        self._parts.append(pa.Table.from_arrays(columns, names=self._names))
        self._rows += made.num_rows

    def _merge(self) -> None:
        parts, self._parts, self._rows = self._parts, [], 0
        if parts:
            self._keep(pa.concat_tables(parts))

    def rows(self, kept: pc.Expression | None = None) -> Iterator[dict[str, Any]]:
        """The sums, by the names of the columns."""
        self._merge()
        for table in self._parts:
            for batch in (table if kept is None else table.filter(kept)).to_batches(_BATCH):
                yield from batch.to_pylist()


# -- what is looked for

_MINUTE: Final = 60 * _US


def _losses(tables: Tables, rules: Mapping[str, float]) -> Iterator[Finding]:
    numbers = ("seen", "lost_here", "lost_everywhere", "expected")
    sums = _Sums(("host", "src"), numbers, "win", "win")
    for batch in tables.rows("link_loss", ("host", "src", "win", *numbers)):
        sums.add(batch)
    everywhere: dict[str, Finding] = {}
    for row in sums.rows():
        host, src, span = row["host"], row["src"], (row["first"], row["last"] + _MINUTE)
        due = row["seen"] + row["lost_here"]
        share = row["lost_here"] / max(1, due)
        if due >= LEAST_DUE and share > rules["loss"]:
            yield Finding("loss", share, rules["loss"], host, src, None, *span)
        share = row["lost_everywhere"] / max(1, row["expected"])
        # Every receiver knows of what nobody heard; the one that missed most tells.
        least = everywhere[src].value if src in everywhere else rules["lost_everywhere"]
        if row["expected"] >= LEAST_DUE and share > least:
            everywhere[src] = Finding("lost_everywhere", share, rules["lost_everywhere"], None, src, None, *span)
    yield from everywhere.values()


def _deaths(tables: Tables, rules: Mapping[str, float]) -> Iterator[Finding]:
    of_all = (pc.field("kind") == "open") & pc.field("host").is_null()
    for batch in tables.rows("liveness", ("src", "from_ts", "to_ts"), kept=of_all):
        for row in batch.to_pylist():
            seconds = (row["to_ts"] - row["from_ts"]) / _US
            if seconds > rules["dead"]:
                yield Finding("dead", seconds, rules["dead"], None, row["src"], None, row["from_ts"], row["to_ts"])


def _restarts(tables: Tables, rules: Mapping[str, float]) -> Iterator[Finding]:
    found: dict[str, list[int]] = {}
    for batch in tables.rows("epochs", ("src", "cause", "first_ts")):
        for row in batch.to_pylist():
            if row["cause"] in ("restart", "masked"):
                found.setdefault(row["src"], []).append(row["first_ts"])
    for src, times in found.items():
        if len(times) > rules["restarts"]:
            yield Finding("restarts", len(times), rules["restarts"], None, src, None, min(times), max(times))


def _failures(tables: Tables, rules: Mapping[str, float]) -> Iterator[Finding]:
    sums = _Sums(("host", "claimed_src"), ("n",), "first_ts", "last_ts")
    kinds = ("integrity_failed", "integrity_missing", "integrity_unknown")
    for batch in tables.rows("integrity", ("host", "claimed_src", "verdict", "n", "first_ts", "last_ts")):
        mine = batch.filter(pc.is_in(batch.column("verdict"), value_set=pa.array(kinds)))
        if mine.num_rows:
            sums.add(mine)
    for row in sums.rows(pc.field("n") > rules["integrity"]):
        span = row["first"], row["last"]
        yield Finding("integrity", row["n"], rules["integrity"], row["host"], row["claimed_src"], None, *span)


def _skews(tables: Tables, rules: Mapping[str, float]) -> Iterator[Finding]:
    worst: dict[str, float] = {}
    for batch in tables.rows("skew", ("host", "p50_us")):
        for row in batch.to_pylist():
            worst[row["host"]] = max(worst.get(row["host"], 0.0), abs(row["p50_us"]) / _US)
    for host, seconds in worst.items():
        if seconds > rules["skew"]:
            yield Finding("skew", seconds, rules["skew"], host)


def _floods(tables: Tables, rules: Mapping[str, float]) -> Iterator[Finding]:
    sums = _Sums(("chan", "win"), ("msgs",), "win", "win")
    for batch in tables.rows("channel_traffic", ("chan", "win", "msgs")):
        sums.add(batch)
    worst: dict[str, Finding] = {}
    for row in sums.rows(pc.field("msgs") > 60 * rules["flood"]):
        chan, rate, win = row["chan"], row["msgs"] / 60, row["first"]
        if chan not in worst or rate > worst[chan].value:
            worst[chan] = Finding("flood", rate, rules["flood"], None, None, chan, win, win + _MINUTE)
    yield from worst.values()


_READERS: Final[Mapping[str, Callable[[Tables, Mapping[str, float]], Iterator[Finding]]]] = {
    "link_loss": _losses,
    "liveness": _deaths,
    "epochs": _restarts,
    "integrity": _failures,
    "skew": _skews,
    "channel_traffic": _floods,
}


def findings(where: str, rules: Mapping[str, float], days: int = 1) -> list[Finding]:
    """All that crosses a threshold, the worst of each kind first. Raises PipelineError: no_tables, bad_table."""
    tables = Tables(where, days)
    found = [one for read in _READERS.values() for one in read(tables, {**RULES, **rules})]
    order = list(RULES)
    return sorted(found, key=lambda one: (order.index(one.kind), -one.value, one.name))


# -- what is news


class Published:
    """What was said before, in a small file beside the tables: values by the names of findings."""

    def __init__(self, where: str) -> None:
        """Raises PipelineError: bad_state."""
        self._filesystem, self._root = files.open_root(where)
        self._path = f"{self._root}/{STATE}"
        self.said: dict[str, float] = {}
        with suppress(FileNotFoundError):
            try:
                with self._filesystem.open_input_stream(self._path) as file:
                    held = json.loads(file.read())
                self.said = {str(name): float(value) for name, value in held["said"].items()}
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise PipelineError(
                    "bad_state", f"{self._path} is not what was written there", "remove it: all will be said again"
                ) from error

    def news(self, found: Iterable[Finding]) -> list[Finding]:
        """What was not said before, or got worse. How long somebody is dead gets worse by itself."""
        return [
            one
            for one in found
            if one.name not in self.said or (one.kind != "dead" and one.value >= WORSE * self.said[one.name])
        ]

    def write(self, found: Sequence[Finding], said: Sequence[Finding]) -> None:
        """All of ``said`` was taken; what is not among ``found`` any more is over. Raises OSError."""
        there = {one.name for one in found}
        held = {name: value for name, value in self.said.items() if name in there}
        held |= {one.name: one.value for one in said}
        self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
        beside = f"{self._path}.new"
        with self._filesystem.open_output_stream(beside) as file:
            file.write(json.dumps({"said": held}).encode())
        self._filesystem.move(beside, self._path)
        self.said = held
