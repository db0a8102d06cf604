"""Removes what is older, or more, than a journal is to hold.

Invariant: only whole files of this host with names of the recorder are removed, the oldest first. Before them their
time is removed from the sessions, which so never cover a time whose records are gone. The age of a record is counted
from the newest record of the journal, not from a clock: one that is ahead makes nothing old.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal import file_names, files
from bccnd.journal.listing import ListedFile, list_files
from bccnd.recorder.convert import read_sessions, replace_sessions
from bccnd.recorder.sessions import Head, Session, clip_sessions
from bccnd.version import VERSION

if TYPE_CHECKING:
    from bccnd.config.recorder_schema import KeepSettings


def retain(
    filesystem: pafs.FileSystem, root: str, host: str, keep: KeepSettings, now: float, current_journal: str = ""
) -> tuple[int, int]:
    """Remove what is too old or too much; return the number of files removed and their bytes. ``now`` (seconds since
    1970) limits the time of the newest record, as that may be wrong; ``current_journal`` is the one that is being
    written. Raises OSError."""
    if not keep.age and not keep.size:
        return 0, 0
    listed = list_files(filesystem, root, hosts=[host])
    total = sum(file.size for file in listed)
    before = 0.0
    if keep.age and listed:
        before = min(now, _latest(filesystem, root, listed[-1].name) / file_names.MICROSECONDS) - keep.age
    going: list[ListedFile] = []
    for file in listed:
        too_old = keep.age and _latest(filesystem, root, file.name) < before * file_names.MICROSECONDS
        if not too_old and not (keep.size and total > keep.size):
            break
        going.append(file)
        total -= file.size
    staying = {file.name.journal_id for file in listed[len(going) :]}
    for journal in dict.fromkeys(file.name.journal_id for file in going):
        last = max(_latest(filesystem, root, file.name) for file in going if file.name.journal_id == journal)
        whole = journal not in staying and journal != current_journal
        _forget(filesystem, root, host, journal, None if whole else last + 1)
    for file in going:
        filesystem.delete_file(f"{root}/{file.name.path}")
    if before:
        _without_records(filesystem, root, host, staying | {current_journal}, before)
    _sweep(filesystem, root, {file.name.path.rpartition("/")[0] for file in going})
    return len(going), sum(file.size for file in going)


def _end_of(day: str) -> float:
    """When a day is over (UTC), in seconds since 1970."""
    return (datetime.datetime.fromisoformat(f"{day}T00:00Z") + datetime.timedelta(days=1)).timestamp()


def _latest(filesystem: pafs.FileSystem, root: str, name: file_names.ObsFile) -> int:
    """The time of the latest record of a file: of a damaged one the end of its day, before which nothing is claimed of
    the journal then; 0 if it is gone. Raises OSError, and nothing is removed then."""
    try:
        with files.detect_damage(), filesystem.open_input_file(f"{root}/{name.path}") as file:
            parquet = pq.read_metadata(file)
            column = parquet.schema.to_arrow_schema().names.index("ts")
            groups = [parquet.row_group(number).column(column) for number in range(parquet.num_row_groups)]
            times = [group.statistics.max for group in groups if group.statistics is not None]
        return int(pa.scalar(max(times), pa.timestamp("us", "UTC")).value)
    except FileNotFoundError:
        return 0
    except (files.DamagedFileError, ValueError):  # neither is a file without this column, or without its statistics
        return round(_end_of(name.day) * file_names.MICROSECONDS) - 1


def _forget(filesystem: pafs.FileSystem, root: str, host: str, journal: str, before: int | None) -> None:
    """Claim nothing of a journal before a time; None: nothing at all."""
    place = f"{root}/{file_names.sessions_path(host, journal)}"
    if before is None:
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(place)
        return
    sessions = read_sessions(filesystem, place)
    # An empty one where none is left: the next file of this journal lists its sessions again, and must learn from when.
    left = clip_sessions(sessions, before) or [Session(before, before)]
    if sessions and left != sessions:
        replace_sessions(filesystem, root, Head(host, journal, 1, VERSION), left)


def _without_records(filesystem: pafs.FileSystem, root: str, host: str, staying: Iterable[str], before: float) -> None:
    """Remove the sessions of journals without records, once they are as old as records may be."""
    folder = f"{root}/{file_names.SESSIONS}/host={host}"
    for info in files.entries(filesystem, pafs.FileSelector(folder, allow_not_found=True, recursive=True)):
        name = info.base_name.removesuffix(".parquet")
        finished = (info.mtime_ns or 0) / 1e9
        if info.type == pafs.FileType.File and info.base_name != name and name not in staying and finished < before:
            filesystem.delete_file(info.path)


def _sweep(filesystem: pafs.FileSystem, root: str, folders: Iterable[str]) -> None:
    """Remove folders of days that are empty now."""
    for folder in folders:
        place = f"{root}/{folder}"
        if not filesystem.get_file_info(pafs.FileSelector(place, allow_not_found=True)):
            with contextlib.suppress(OSError):
                filesystem.delete_dir(place)
