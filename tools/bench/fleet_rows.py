"""A large journal with loss that is known exactly: rows by the million, made column by column."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bccnd.core.formats.tap_record import seq_key
from bccnd.journal import file_names, files, schema

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
#: 2026-03-01, at midnight
START: Final = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()) * SECOND
HOSTS: Final = 20
SOURCES: Final = 100
#: time of one file of a host, and messages of each source in it: with one in ten sent twice, about 1.1 million rows
CHUNK: Final = 6 * MINUTE
MESSAGES: Final = 500
ROWS_OF_A_CHUNK: Final = MESSAGES * SOURCES * HOSTS
#: of each source, every so many messages are lost at the sender, at each receiver, and are heartbeats
LOST_EVERYWHERE: Final = 211
LOST_HERE: Final = 97
HEARTBEAT: Final = 7
#: every so many sources send everything twice
TWICE: Final = 10
#: of a mixed journal: time from one chunk to the next, each of which has a noon or a midnight in its middle; about then
#: half of the sources start anew with lower numbers; half of the hosts have two journals
APART: Final = 12 * 60 * MINUTE
RESTART: Final = 240
LOWER: Final = 100_000

NAMES: Final = [f"h{number:02d}" for number in range(HOSTS)]
SRCS: Final = [f"h{number % HOSTS:02d}/prog{number // HOSTS}/{1000 + number}" for number in range(SOURCES)]

#: (host, src, minute since 1970) -> expected, any_seen, seen, lost_here, lost_everywhere
Truth = dict[tuple[str, str, int], tuple[int, ...]]


@dataclass
class Made:
    """What was written: rows, and the truth about every cell of link_loss."""

    truth: Truth = field(default_factory=dict)
    #: rows of each journal by its name
    of_journal: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """How chunks follow each other. ``second`` is the chunk with which second journals begin."""

    mixed: bool
    is_sorted: bool
    chunks: int

    @property
    def second(self) -> int:
        return self.chunks // 2 if self.mixed else 0

    def start(self, chunk: int) -> int:
        return START - CHUNK // 2 + (chunk + 1) * APART if self.mixed else START + chunk * CHUNK

    def journals(self, host: int) -> list[tuple[str, int, int]]:
        """The name of each journal of a host, its first chunk, and the first one that it does not have."""
        bounds = [0, self.second, self.chunks] if self.second and host % 2 else [0, self.chunks]
        return [
            (f"202603{number + 1:02d}T000000Z-{host:08x}", first, last)
            for number, (first, last) in enumerate(itertools.pairwise(bounds))
        ]


def make(journal: str, rows: int, *, mixed: bool = False, is_sorted: bool = True) -> Made:
    """Write a journal of about so many rows; a ``mixed`` one has restarts, second journals, and ends of days. One that
    is not ``is_sorted`` is as another writer may leave it: in the order of time, without shares."""
    made = Made()
    plan = Plan(mixed, is_sorted, max(1, round(rows / ROWS_OF_A_CHUNK)))
    for chunk in range(plan.chunks):
        _chunk(journal, plan, chunk, made)
    _sessions(journal, plan)
    return made


def _chunk(journal: str, plan: Plan, chunk: int, made: Made) -> None:
    source = np.repeat(np.arange(SOURCES), MESSAGES)
    place = np.tile(np.arange(MESSAGES), SOURCES)
    number = chunk * MESSAGES + place
    spacing = CHUNK // MESSAGES
    sent = plan.start(chunk) + place * spacing + source * (spacing // SOURCES)
    restarts = (source % 2 == 1) & plan.mixed
    first = RESTART + source % 20
    run = np.where(restarts, chunk + (place >= first), 0)
    # A gap is seen by the message behind it: the last of a chunk, and of a run, is never lost, nor is the first.
    edge = (place == MESSAGES - 1) | (restarts & ((place == first) | (place == first - 1)))
    gone = (number % LOST_EVERYWHERE == 100) & ~edge
    host = np.arange(HOSTS)[:, None]
    lost = (number[None, :] * 31 + host * 17 + source[None, :] * 7) % LOST_HERE == 0
    # Nothing is lost to everybody but what is lost at the sender.
    seen = ~lost & ~gone[None, :]
    delay = 100 + (number[None, :] * 13 + host * 7) % 200
    at = np.where(seen, sent[None, :] + delay, np.iinfo(np.int64).max)
    _count(made.truth, source, number, gone, seen, at.min(axis=0))
    key = seq_key(START) + number - run * LOWER
    for one in range(HOSTS):
        name, begun, _ = next(each for each in plan.journals(one) if each[1] <= chunk < each[2])
        epoch = 1 + run - np.where(restarts, begun, 0)
        columns = np.array([source, number, key, epoch, at[one]])[:, seen[one]]
        before = made.of_journal.get(name, 0)
        made.of_journal[name] = before + _write(journal, plan, name, before, one, columns)


def _count(truth: Truth, source: Any, number: Any, gone: Any, seen: Any, first: Any) -> None:
    """The cells of a chunk: each message in the minute in which the first receiver saw it."""
    there = seen.any(axis=0)
    assert (there == ~gone).all()
    # How many numbers directly before a message nobody saw; those of one source stand together.
    before = np.zeros(len(number), dtype=np.int64)
    before[1:] = gone[:-1] & (source[1:] == source[:-1])
    minute = first // MINUTE
    cell = np.where(there, source * 10**9 + minute - START // MINUTE, -1)
    cells, where = np.unique(cell, return_inverse=True)
    any_seen = np.bincount(where, weights=there)
    everywhere = np.bincount(where, weights=before * there)
    for one in range(HOSTS):
        heard = np.bincount(where, weights=seen[one])
        for place, each in enumerate(cells):
            if each < 0:
                continue
            key = (NAMES[one], SRCS[int(each // 10**9)], int(each % 10**9 + START // MINUTE))
            count, got, lost = int(any_seen[place]), int(heard[place]), int(everywhere[place])
            _add(truth, key, (count + lost, count, got, count - got, lost))


def _write(journal: str, plan: Plan, name: str, first: int, host: int, columns: Any) -> int:
    """A host's rows of a chunk, from the messages that it received, sorted by source; returns how many rows it has."""
    source, _, _, epoch, _ = columns
    fresh = np.concatenate([[False], (epoch[1:] > epoch[:-1]) & (source[1:] == source[:-1])])
    twice = source % TWICE == 0
    copy = np.arange(len(source) + twice.sum()) >= len(source)
    source, number, key, epoch, at = np.concatenate([columns, columns[:, twice]], axis=1)
    fresh = np.concatenate([fresh, fresh[twice] & False])
    at = at + copy * 2000
    order = np.argsort(at, kind="stable")
    source, number, key, epoch, at, copy, fresh = (one[order] for one in (source, number, key, epoch, at, copy, fresh))
    beat = number % HEARTBEAT == 0
    chans = [*(f"data/{one}" for one in range(5)), *(f"heartbeat/{src}" for src in SRCS)]
    verdict = np.select([source % HOSTS == host, copy, fresh], [3, 1, 2])
    write_rows(
        *(journal, NAMES[host], name, first, SRCS, source, key, at),
        is_sorted=plan.is_sorted,
        peer_ip=_named([f"10.0.0.{one + 1}" for one in range(HOSTS)], source % HOSTS),
        verdict=_named(["accepted", "duplicate", "restart", "looped"], verdict),
        epoch=pa.array(np.where(source % HOSTS == host, 0, epoch)),
        chan=_named(chans, np.where(beat, 5 + source, source // HOSTS)),
        len=pa.array(120 + number % 40),
    )
    return len(at)


def write_rows(
    journal: str,
    host: str,
    name: str,
    first: int,
    srcs: list[str],
    source: Any,
    key: Any,
    at: Any,
    *,
    is_sorted: bool = True,
    **columns: Any,
) -> None:
    """Write rows of a host, a file for each day; without other columns all are accepted.

    ``first`` is the number of the first row; each row has an index in ``srcs``, a number and a time.
    """
    always = {
        "host": host,
        "journal_id": name,
        "segment": "lan",
        "peer_ip": "10.0.0.1",
        "verdict": "accepted",
        "magic": "BCCN1",
        "algo": "hmac",
        "epoch": 1,
        "chan": "data",
        "form": "plain",
        "len": 120,
    }
    count = len(at)
    made = {column: pa.repeat(value, count) for column, value in always.items()} | {
        "rec_no": pa.array(np.arange(first, first + count)),
        "ts": pa.array(at).cast(pa.timestamp("us", "UTC")),
        "peer_port": pa.array(40_000 + source),
        "src": _named(srcs, source),
        "seq_key": pa.array(key),
        "payload": pa.nulls(count, pa.binary()),
    }
    columns_of_others = pa.schema([field for field in schema.OBS if field.name != schema.SHARE])
    table = pa.table(made | columns, schema=columns_of_others)
    filesystem, root = files.open_root(journal)
    days = pc.strftime(table["ts"], format="%Y-%m-%d")
    for day in pc.unique(days).to_pylist():
        chosen = table.filter(pc.equal(days, day))
        place = file_names.ObsFile(host, day, name, chosen["rec_no"][0].as_py())
        if is_sorted:
            files.write_records(filesystem, root, place.path, schema.conform(chosen))
        else:
            files.write(filesystem, root, place.path, chosen)


def _named(values: list[str], which: Any) -> pa.Array:
    return pa.array(values).take(pa.array(which))


def _sessions(journal: str, plan: Plan) -> None:
    for host in range(HOSTS):
        for name, first, last in plan.journals(host):
            # Between two journals of a host there is no time.
            start = plan.start(first) - (0 if first else MINUTE)
            end = plan.start(last) - 1 if last < plan.chunks else plan.start(last - 1) + CHUNK + MINUTE
            write_session(journal, NAMES[host], name, start, end)


def write_session(journal: str, host: str, name: str, start: int, end: int) -> None:
    """Write that a host was listening from a time to another one, without losses."""
    filesystem, root = files.open_root(journal)
    row = {"host": host, "journal_id": name, "start_ts": start, "end_ts": end, "version": "bench"}
    table = pa.Table.from_pylist([{**row, "socket_drops": 0, "tap_gaps": 0}], schema=schema.SESSIONS)
    files.write(filesystem, root, file_names.sessions_path(host, name), table)


def cells(tables: str) -> Truth:
    """The cells of link_loss as they were computed. Everybody was listening all the time."""
    table = DeltaTable(f"{tables}/link_loss").to_pyarrow_table()
    assert table.num_rows == 0 or pc.sum(table["not_listening"]).as_py() == 0
    minute = pc.divide(table["win"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), MINUTE)
    names = ("expected", "any_seen", "seen", "lost_here", "lost_everywhere")
    columns = [table["host"].to_pylist(), table["src"].to_pylist(), minute.to_pylist()]
    counts = zip(*(table[name].to_pylist() for name in names), strict=True)
    found: Truth = {}
    for host, src, win, count in zip(*columns, counts, strict=True):
        # a cell with nothing but copies of messages of the minute before it
        if count[0]:
            _add(found, (str(host), str(src), win), count)
    return found


def _add(cells: Truth, key: tuple[str, str, int], count: tuple[int, ...]) -> None:
    """Add to a cell, in which several runs of a source may be."""
    cells[key] = tuple(map(sum, zip(cells[key], count, strict=True))) if key in cells else count
