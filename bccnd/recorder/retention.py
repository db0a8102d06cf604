"""Removes what is older, or more, than a journal is to hold.

Invariant: only whole files of this host with names of the recorder are removed, the oldest first. Before them their
time is removed from the sessions, which so never cover a time whose records are gone. The age of a record is counted
from the newest record of the journal, not from a clock: one that is ahead makes nothing old.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal import file_names, files
from bccnd.journal.damage import DamagedFileError, detect_damage
from bccnd.journal.listing import ListedFile, list_files
from bccnd.journal.session_files import read_sessions, write_sessions
from bccnd.version import VERSION


def retain(
    filesystem: pafs.FileSystem, root: str, host: str, age: float, size: int, now: float, current_journal: str = ""
) -> tuple[int, int]:
    """Remove what is older than ``age`` seconds or more than ``size`` bytes (0: no limit); return the number of files
    removed and their bytes. ``now`` (seconds since 1970) limits the time of the newest record, as that may be wrong;
    ``current_journal`` is the one that is being written. Raises OSError."""
    listed = list_files(filesystem, root, hosts=[host])
    total = sum(file.size for file in listed)
    before = 0.0
    if age and listed:
        before = min(now, _latest(filesystem, root, listed[-1].name) / file_names.MICROSECONDS) - age
    going: list[ListedFile] = []
    gone: dict[str, dict[int, int]] = {}
    for file in listed:
        latest = _latest(filesystem, root, file.name)
        too_old = age and latest < before * file_names.MICROSECONDS
        if not too_old and not (size and total > size):
            break
        going.append(file)
        gone.setdefault(file.name.journal_id, {})[file.name.first] = latest
        total -= file.size
    staying: dict[str, list[int]] = {current_journal: []}
    for file in listed[len(going) :]:
        staying.setdefault(file.name.journal_id, []).append(file.name.first)
    for journal, ends in gone.items():
        if journal in staying:
            _forget(filesystem, root, host, journal, ends, staying[journal])
        else:
            with contextlib.suppress(FileNotFoundError):
                filesystem.delete_file(f"{root}/{file_names.sessions_path(host, journal)}")
    for file in going:
        filesystem.delete_file(f"{root}/{file.name.path}")
    if before:
        _without_records(filesystem, root, host, staying, before)
    _sweep(filesystem, root, {file.name.path.rpartition("/")[0] for file in going})
    return len(going), sum(file.size for file in going)


def _latest(filesystem: pafs.FileSystem, root: str, name: file_names.ObsFile) -> int:
    """Return the time of the latest record of a file: of a damaged one the end of its day, before which nothing is
    claimed of the journal then; 0 if it is gone. Raises OSError, and nothing is removed then."""
    try:
        with detect_damage(), filesystem.open_input_file(f"{root}/{name.path}") as file:
            parquet = pq.read_metadata(file)
            column = parquet.schema.to_arrow_schema().names.index("ts")
            groups = [parquet.row_group(number).column(column) for number in range(parquet.num_row_groups)]
            times = [group.statistics.max for group in groups if group.statistics is not None]
        return int(pa.scalar(max(times), pa.timestamp("us", "UTC")).value)
    except FileNotFoundError:
        return 0
    except (DamagedFileError, ValueError):  # neither is a file without this column, or without its statistics
        return file_names.start_of(name.day) + file_names.DAY - 1


def _forget(
    filesystem: pafs.FileSystem, root: str, host: str, journal: str, gone: dict[int, int], staying: list[int]
) -> None:
    """Take files from the sessions of a journal: ``gone`` has the first number of each and its latest time,
    ``staying`` the first numbers of the others."""
    try:
        sessions = read_sessions(filesystem, root, host, journal)
    except DamagedFileError:
        return
    for session in sessions:
        low, high = session.first, session.last
        times = [latest for number, latest in gone.items() if low <= number <= high]
        if times:
            session.start = max(session.start, max(times) + 1)
            session.first = min((number for number in staying if low <= number <= high), default=high + 1)
    # The last one stays: the next file of this journal lists its sessions again, and must learn what was removed.
    left = [session for session in sessions if session.start < session.end or session is sessions[-1]]
    for session in left:
        session.end = max(session.start, session.end)
    if left:
        write_sessions(filesystem, root, host, journal, VERSION, left)


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
