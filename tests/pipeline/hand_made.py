"""Journals of a few rows, each told by what is unusual about it, and their tables."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.fs as pafs

from bccnd.core.formats.tap_record import Observation, seq_key
from bccnd.journal import file_names, files
from bccnd.journal.session_files import write_sessions
from bccnd.journal.sessions import RecorderSession
from tests.pipeline.fleets import Rows, built

SECOND = 1_000_000
#: the day on which most tests happen, at midnight
DAY = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()) * SECOND
_USUAL: dict[str, Any] = {
    "segment": "lan",
    "peer_ip": "10.0.0.1",
    "peer_port": 5400,
    "verdict": "accepted",
    "magic": "BCCN1",
    "algo": None,
    "src": "m/p/1",
    "epoch": 1,
    "chan": "data",
    "form": "plain",
    "length": 100,
    "payload": None,
}


def at(seconds: float) -> int:
    """So many seconds after the midnight with which `DAY` begins, in microseconds since 1970."""
    return DAY + round(seconds * SECOND)


def row(s: float, seq: int = 1, **unusual: Any) -> Observation:
    """A datagram that came at second ``s`` of `DAY`."""
    return Observation(**{**_USUAL, "ts": at(s), "seq_key": seq_key(seq), **unusual})


def numbered(seqs: Iterable[int], start: float = 0.0, apart: float = 1.0, **unusual: Any) -> list[Observation]:
    """Datagrams with these numbers, one after the other."""
    return [row(start + place * apart, seq, **unusual) for place, seq in enumerate(seqs)]


class Journal(NamedTuple):
    """A journal of a host: its records from number 1 on, and its sessions as (from, to) in seconds; None: one that
    lasts as long as the records."""

    host: str
    rows: Sequence[Observation]
    sessions: Sequence[tuple[float, float]] | None = None
    name: str = "j1"


def write(folder: Path, *journals: Journal) -> Path:
    """Write journals below a folder."""
    disk, root = pafs.LocalFileSystem(), str(folder)
    for host, rows, sessions, name in journals:
        first = 1
        while first <= len(rows):
            day = file_names.day_of(rows[first - 1].ts)
            of_day = list(_leading(rows[first - 1 :], day))
            path = file_names.ObsFile(host, day, name, first).path
            files.write_records(disk, root, path, files.obs_table(host, name, first, of_day))
            first += len(of_day)
        spans = sessions if sessions is not None else [_span(rows)]
        if spans:
            write_sessions(disk, root, host, name, "1", list(_numbered(rows, spans)))
    return folder


def _leading(rows: Sequence[Observation], day: str) -> Iterable[Observation]:
    for one in rows:
        if file_names.day_of(one.ts) != day:
            return
        yield one


def _span(rows: Sequence[Observation]) -> tuple[float, float]:
    times = [(one.ts - DAY) / SECOND for one in rows]
    return min(times), max(times)


def _numbered(rows: Sequence[Observation], spans: Sequence[tuple[float, float]]) -> Iterable[RecorderSession]:
    first = 1
    for start, end in spans:
        count = sum(at(start) <= one.ts <= at(end) for one in rows)
        yield RecorderSession(at(start), at(end), first=first, last=first + count - 1)
        first += count


def tables(folder: Path, *journals: Journal) -> Rows:
    """The tables of journals."""
    return built(write(folder / "journal", *journals), folder / "tables")


def since(us: int | None) -> float | None:
    """A time as seconds of `DAY`."""
    return None if us is None else (us - DAY) / SECOND


def lost(rows: Rows) -> dict[tuple[str, str], tuple[int, int]]:
    """What each host lost of each source, alone and with all others, where that is anything."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for link in rows["link_loss"]:
        here, everywhere = sums.get((link["host"], link["src"]), (0, 0))
        sums[link["host"], link["src"]] = here + link["lost_here"], everywhere + link["lost_everywhere"]
    return {key: value for key, value in sums.items() if any(value)}
