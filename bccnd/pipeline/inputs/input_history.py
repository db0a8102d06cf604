"""What the tables were made of, and which days must be computed because the journal has something else by now.

Invariant: retention never changes a table. A recorder removes its oldest files, and takes the time of what it removed
out of its sessions. The sessions that were known before are kept (`remember`), and a day is not computed again once
records that its tables were made of are gone: its tables stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from bccnd.journal.file_names import DAY, day_of, read_path, start_of
from bccnd.pipeline.inputs.journal_listing import ListedFile
from bccnd.pipeline.inputs.sessions import JournalSession, by_journal
from bccnd.pipeline.inputs.verification import JournalFile

#: microseconds: rows so near to midnight belong to the days on both sides of it: clocks differ, and copies come late
MARGIN: Final = 600_000_000
#: seconds behind the newest day after which a day is final
FINAL_AFTER: Final = 7 * 86_400.0
#: a file that the tables of a day were made of (`JournalFile`), and its times by the corrected clock
COLUMNS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("low_us", pa.int64()),
        ("high_us", pa.int64()),
        ("segments", pa.list_(pa.string())),
        ("size", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("tag", pa.string()),
        ("has_share", pa.bool_()),
        ("has_payload", pa.bool_()),
        ("from_us", pa.int64()),
        ("to_us", pa.int64()),
    ]
)


class Used(NamedTuple):
    """A file as the tables of a day were made of it, and the times of its first and last row by the corrected clock."""

    listed: ListedFile
    from_us: int
    to_us: int


def days_between(low_us: int, high_us: int, margin_us: int = 0) -> set[str]:
    """The days from a time to another, and those within the margin."""
    return {day_of(date * DAY) for date in range((low_us - margin_us) // DAY, (high_us + margin_us) // DAY + 1)}


def first_open_day(days: Collection[str], final_after: float, now: float) -> str:
    """The first day that is not final: any, empty, if ``final_after`` is 0. A clock that is ahead makes no day final,
    so the newest day is one that has begun."""
    if not days or not final_after:
        return ""
    newest = min(max(days), day_of(int(now) * 1_000_000))
    return day_of(start_of(newest) - math.ceil(final_after / 86_400) * DAY)


def remember(before: Iterable[JournalSession], after: Iterable[JournalSession]) -> list[JournalSession]:
    """The sessions that a journal has now (``after``), and what retention has taken of those known before.

    Retention moves the first start of a journal forward, removes its first sessions or all of them. So what was known
    in front of the first start that is left is still true; behind it the journal is right.
    """
    now = by_journal(after)
    for journal, remembered in by_journal(before).items():
        listed = now.get(journal, [])
        if listed:
            first, *later = listed
            remembered = [session for session in remembered if session.start_us < first.start_us]
            if remembered and remembered[-1].end_us >= first.start_us:
                *remembered, same = remembered
                first = first._replace(start_us=same.start_us, first_rec_no=same.first_rec_no)
            listed = [first, *later]
        now[journal] = [*remembered, *listed]
    return [session for journal in sorted(now) for session in now[journal]]


def changed(
    before: Iterable[JournalSession], after: Iterable[JournalSession], shift: Callable[[JournalSession, int], int]
) -> set[str]:
    """The days in which receivers were recording in only one of two sets of sessions; ``shift`` is by how much the
    clock of a session was ahead at a time."""
    old, new = ({session[:3]: session for session in sessions} for sessions in (before, after))
    days: set[str] = set()
    for key in old.keys() | new.keys():
        session = new.get(key) or old[key]
        low, high = sorted(sessions[key].end_us if key in sessions else session.start_us for sessions in (old, new))
        if low != high or key not in old or key not in new:
            ends = [time - shift(session, time) for time in (low, high)]
            days |= days_between(min(ends), max(ends), MARGIN)
    return days


@dataclass
class Due:
    """``days`` have to be computed; ``left`` as well, but records of them are gone. ``fixed`` are days of which records
    are gone, and final ones; ``late`` are files whose records are of final days that do not have them. ``made_of`` are
    the files of each day, by path."""

    days: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    made_of: dict[str, dict[str, Used]] = field(default_factory=dict)


def find_due(
    files: Iterable[Used],
    listed: Collection[str],
    recorded: Callable[[str], Mapping[str, Used]],
    recorded_days: Collection[str],
    *,
    changed_days: Collection[str] = (),
    asked: Collection[str] = (),
    first_open: str = "",
) -> Due:
    """Compare the usable files of a journal with those that the tables of each day were made of (``recorded``, of the
    ``recorded_days``). ``listed`` are the paths of all files there are, usable or not; days before ``first_open`` are
    final unless they are ``asked`` for."""
    due = Due()
    days_with_rows: set[str] = set()
    for file in files:
        own = days_between(*file[1:])
        days_with_rows |= own
        for day in days_between(*file[1:], MARGIN):
            due.made_of.setdefault(day, {})[file.listed.path] = file
        if all(day < first_open and day not in asked and file.listed.path not in recorded(day) for day in own):
            due.late.add(file.listed.path)
    for day in sorted(days_with_rows | {*recorded_days} | {*asked}):
        if day < first_open and day not in asked:
            due.fixed.add(day)
            continue
        before, now = recorded(day), due.made_of.setdefault(day, {})
        new = any(before.get(path) != file for path, file in now.items())
        withdrawn = any(path in listed and path not in now for path in before)
        is_complete = all(path in listed for path in before) and (now or withdrawn)
        if not is_complete:
            due.fixed.add(day)
        if new or withdrawn or day in asked or (now and day in changed_days):
            (due.days if is_complete else due.left).add(day)
    return due


def to_table(files: Mapping[str, JournalFile], made_of: Mapping[str, Used]) -> pa.Table:
    """Rows of `COLUMNS`: the files (by path) that a day was made of."""
    rows = [
        {**files[path]._asdict(), "from_us": use.from_us, "to_us": use.to_us} for path, use in sorted(made_of.items())
    ]
    return pa.Table.from_pylist(rows, COLUMNS)


def from_table(table: pa.Table) -> list[tuple[JournalFile, Used]]:
    """The files that a day was made of."""
    found = []
    for row in table.to_pylist():
        name = read_path(row["path"])
        if name is not None:
            from_us, to_us = row.pop("from_us"), row.pop("to_us")
            parts = {"host": name.host, "journal_id": name.journal_id, "day": name.day, "first_rec": name.first}
            file = JournalFile(**{**row, **parts, "segments": tuple(row["segments"])})
            found.append((file, Used(file.listed, from_us, to_us)))
    return found
