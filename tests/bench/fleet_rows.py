"""A large journal with loss that is known exactly: rows by the million, made column by column."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bccnd.core.observe import seq_key
from bccnd.journal import files, layout, schema

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

NAMES: Final = [f"h{number:02d}" for number in range(HOSTS)]
SRCS: Final = [f"h{number % HOSTS:02d}/prog{number // HOSTS}/{1000 + number}" for number in range(SOURCES)]

#: (host, src, minute since 1970) -> expected, any_seen, seen, lost_here, lost_everywhere
Truth = dict[tuple[str, str, int], tuple[int, ...]]


@dataclass
class Made:
    """What was written: all rows, and the truth about every cell of link_loss."""

    rows: int = 0
    truth: Truth = field(default_factory=dict)
    #: rows of each host, in the order of `NAMES`
    of_host: list[int] = field(default_factory=lambda: [0] * HOSTS)


def make(journal: str, rows: int) -> Made:
    """Write a journal of about so many rows."""
    made = Made()
    for chunk in range(max(1, round(rows / ROWS_OF_A_CHUNK))):
        _chunk(journal, chunk, made)
    _sessions(journal, START - MINUTE, START + (max(1, round(rows / ROWS_OF_A_CHUNK))) * CHUNK + MINUTE)
    return made


def _chunk(journal: str, chunk: int, made: Made) -> None:
    index = np.arange(chunk * MESSAGES, (chunk + 1) * MESSAGES)
    source = np.repeat(np.arange(SOURCES), MESSAGES)
    number = np.tile(index, SOURCES)
    spacing = CHUNK // MESSAGES
    sent = START + number * spacing + source * (spacing // SOURCES)
    # A gap is seen by the message behind it: the last of a chunk is never lost.
    gone = (number % LOST_EVERYWHERE == 100) & (number % MESSAGES != MESSAGES - 1)
    host = np.arange(HOSTS)[:, None]
    lost = (number[None, :] * 31 + host * 17 + source[None, :] * 7) % LOST_HERE == 0
    # Nothing is lost to everybody but what is lost at the sender.
    seen = ~lost & ~gone[None, :]
    delay = 100 + (number[None, :] * 13 + host * 7) % 200
    at = np.where(seen, sent[None, :] + delay, np.iinfo(np.int64).max)
    _count(made.truth, source, number, gone, seen, at.min(axis=0))
    key = seq_key(START) + number
    for one in range(HOSTS):
        mine = seen[one]
        count = _write(journal, made.of_host[one], one, source[mine], number[mine], key[mine], at[one][mine])
        made.of_host[one] += count
        made.rows += count


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
            more = (count + lost, count, got, count - got, lost)
            had = truth.get(key, (0,) * len(more))
            truth[key] = tuple(map(sum, zip(had, more, strict=True)))


def _write(journal: str, first: int, host: int, source: Any, number: Any, key: Any, at: Any) -> int:
    """A host's file of a chunk; returns how many rows it has."""
    twice = source % TWICE == 0
    source, number, key = (np.concatenate([one, one[twice]]) for one in (source, number, key))
    at = np.concatenate([at, at[twice] + 2000])
    copy = np.arange(len(at)) >= len(twice)
    order = np.argsort(at, kind="stable")
    source, number, key, at, copy = (one[order] for one in (source, number, key, at, copy))
    count = len(at)
    beat = number % HEARTBEAT == 0
    own = source % HOSTS == host
    chans = [*(f"data/{one}" for one in range(5)), *(f"heartbeat/{src}" for src in SRCS)]

    def named(values: list[str], which: Any) -> pa.Array:
        return pa.array(values).take(pa.array(which))

    name = f"20260301T000000Z-{host:08x}"
    always = {
        "host": NAMES[host],
        "journal_id": name,
        "segment": "lan",
        "magic": "BCCN1",
        "algo": "hmac",
        "form": "plain",
    }
    columns = {
        **{column: pa.repeat(value, count) for column, value in always.items()},
        "rec_no": pa.array(np.arange(first, first + count)),
        "ts": pa.array(at).cast(pa.timestamp("us", "UTC")),
        "peer_ip": named([f"10.0.0.{one + 1}" for one in range(HOSTS)], source % HOSTS),
        "peer_port": pa.array((40_000 + source).astype(np.int32)),
        "verdict": named(["accepted", "duplicate", "looped"], np.where(own, 2, np.where(copy, 1, 0))),
        "src": named(SRCS, source),
        "seq_key": pa.array(key),
        "epoch": pa.array(np.where(own, 0, 1).astype(np.int32)),
        "chan": named(chans, np.where(beat, 5 + source, source // HOSTS)),
        "len": pa.array((120 + number % 40).astype(np.int32)),
        "payload": pa.nulls(count, pa.binary()),
    }
    table = pa.table(columns, schema=schema.OBS)
    filesystem, root = files.open_root(journal)
    days = pc.strftime(table["ts"], format="%Y-%m-%d")
    for day in pc.unique(days).to_pylist():
        chosen = table.filter(pc.equal(days, day))
        place = layout.ObsFile(NAMES[host], day, name, chosen["rec_no"][0].as_py())
        files.write(filesystem, root, place.path, chosen)
    return count


def _sessions(journal: str, start: int, end: int) -> None:
    filesystem, root = files.open_root(journal)
    for host in range(HOSTS):
        name = f"20260301T000000Z-{host:08x}"
        row = {"host": NAMES[host], "journal_id": name, "start_ts": start, "end_ts": end, "version": "bench"}
        table = pa.Table.from_pylist([{**row, "socket_drops": 0, "tap_gaps": 0}], schema=schema.SESSIONS)
        files.write(filesystem, root, layout.sessions_path(NAMES[host], name), table)


def cells(tables: str) -> Truth:
    """The cells of link_loss as they were computed. Everybody was listening all the time."""
    table = pq.read_table(f"{tables}/link_loss")
    assert table.num_rows == 0 or pc.sum(table["not_listening"]).as_py() == 0
    minute = pc.divide(table["win"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), MINUTE)
    names = ("expected", "any_seen", "seen", "lost_here", "lost_everywhere")
    columns = [table["host"].to_pylist(), table["src"].to_pylist(), minute.to_pylist()]
    counts = zip(*(table[name].to_pylist() for name in names), strict=True)
    found: Truth = {}
    for host, src, win, count in zip(*columns, counts, strict=True):
        # a cell with nothing but copies of messages of the minute before it
        if count[0]:
            found[(str(host), str(src), win)] = count
    return found
