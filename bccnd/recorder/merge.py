"""Merges the files of days that are over: adjacent files of one host, journal and day become one.

Invariant: at every moment the files to read (`file_names.superseded`) hold every record exactly once. A merged file
appears complete and under a name of its own. The files that it was made of stay for `GRACE`, for readers that have
listed them. A process that is killed leaves an unfinished file or both kinds of files; the next pass goes on from
there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal import file_names, files, schema
from bccnd.journal.listing import ListedFile, current, folders, list_day

#: seconds for which files stay beside the merged file that was made of them
GRACE: Final = 600.0
#: records of a merged file at most: a few hundred MB, and some ten seconds of work
MAX_RECORDS: Final = 4 << 20
#: held locked in the folder of a host while its files are merged
_LOCK: Final = ".merging"
#: rows that are decoded at once
_CHUNK: Final = 16_384


@dataclass
class Step:
    """What a step has done. ``day``: where the next step of this pass begins; empty: the pass is over. ``waiting``
    files are superseded and stay for now. ``damaged`` is the path of a file that cannot be read."""

    day: str = ""
    merged: int = 0
    records: int = 0
    file: str = ""
    removed: int = 0
    waiting: int = 0
    damaged: str = ""


def merge_step(
    filesystem: pafs.FileSystem,
    root: str,
    host: str,
    days: tuple[str, str],
    now: float,
    skip: Collection[str] = (),
) -> Step:
    """Remove superseded files after `GRACE`, and merge files up to one merged file.

    ``days``: the first day to look at, and the day before which they all are; ``skip`` are paths to leave alone.
    Raises OSError.
    """
    step = Step()
    place = f"{file_names.OBS}/host={host}"
    with _only_one(filesystem, f"{root}/{place}") as alone:
        for day in folders(filesystem, f"{root}/{place}", "day=") if alone else ():
            if days[0] <= day < days[1]:
                folder = f"{place}/day={day}"
                listed = [one for one in list_day(filesystem, root, folder) if one.file.path not in skip]
                there = current(listed)
                _remove_superseded(filesystem, root, listed, there, now, step)
                run = _next_run(filesystem, root, [one.file for one in there])
                if run:
                    step.day = day
                    _remove_unfinished(filesystem, f"{root}/{folder}")
                    _merge(filesystem, root, run, step)
                    break
    return step


def _remove_superseded(
    filesystem: pafs.FileSystem, root: str, listed: list[ListedFile], there: list[ListedFile], now: float, step: Step
) -> None:
    """Remove the files that merged files were made of, once these are older than `GRACE`."""
    superseded = {one.file for one in listed} - {one.file for one in there}
    for merged in there if superseded else ():
        inside = [one for one in superseded if merged.file.holds(one)]
        if inside and now - merged.written < GRACE:
            step.waiting += len(inside)
        elif inside and merged.file.last == _last_record(filesystem, root, merged.file):
            for one in sorted(inside, key=lambda file: file.path):
                with contextlib.suppress(FileNotFoundError):
                    filesystem.delete_file(f"{root}/{one.path}")
            step.removed += len(inside)


def _next_run(
    filesystem: pafs.FileSystem, root: str, there: list[file_names.ObsFile]
) -> list[tuple[file_names.ObsFile, int]]:
    """Return the first two or more adjacent files of one journal, with the number of the last record of each; an empty
    list if there are none."""
    run: list[tuple[file_names.ObsFile, int]] = []
    for number, file in enumerate(there):
        near = there[max(0, number - 1) : number + 2]
        alone = sum(one.journal_id == file.journal_id for one in near) == 1
        last = None if alone else _last_record(filesystem, root, file)
        if (
            run
            and last is not None
            and (run[0][0].journal_id, run[-1][1]) == (file.journal_id, file.first - 1)
            and last - run[0][0].first < MAX_RECORDS
        ):
            run.append((file, last))
        elif len(run) > 1:
            break
        else:
            run = [] if last is None else [(file, last)]
    return run if len(run) > 1 else []


def _last_record(filesystem: pafs.FileSystem, root: str, file: file_names.ObsFile) -> int | None:
    """Return the number of the last record of a file from its footer; None if it cannot be read. Raises OSError."""
    try:
        with files.detect_damage(), filesystem.open_input_file(f"{root}/{file.path}") as opened:
            footer = pq.read_metadata(opened)
    except (files.DamagedFileError, FileNotFoundError):
        return None
    if not footer.num_rows or not footer.schema.to_arrow_schema().equals(schema.OBS):
        return None
    return file.first + int(footer.num_rows) - 1


def _merge(filesystem: pafs.FileSystem, root: str, run: list[tuple[file_names.ObsFile, int]], step: Step) -> None:
    """Write the merged file of adjacent files, given with the number of the last record of each."""
    number = run[0][0].first
    merged = run[0][0]._replace(last=run[-1][1])
    reading = merged
    try:
        with files.Writer(filesystem, root, merged.path, schema.OBS) as writer:
            for reading, last in run:
                for table in _rows(filesystem, root, reading):
                    numbers, count = table.column("rec_no"), table.num_rows
                    if (numbers[0].as_py(), numbers[-1].as_py()) != (number, number + count - 1):
                        raise files.DamagedFileError
                    writer.add(table)
                    number += count
                if number != last + 1:
                    raise files.DamagedFileError
    except FileNotFoundError:
        return  # removed since it was listed: the next step lists again
    except files.DamagedFileError:
        step.damaged = reading.path
    else:
        step.merged, step.records, step.file = len(run), number - merged.first, merged.path


def _rows(filesystem: pafs.FileSystem, root: str, file: file_names.ObsFile) -> Iterator[pa.Table]:
    """Yield the rows of a file, some at a time. Raises OSError, DamagedFileError."""
    with files.detect_damage(), filesystem.open_input_file(f"{root}/{file.path}") as opened:
        for batch in pq.ParquetFile(opened).iter_batches(_CHUNK):
            yield pa.Table.from_batches([batch], schema.OBS)


def _remove_unfinished(filesystem: pafs.FileSystem, folder: str) -> None:
    """Remove what a killed process has left of a merged file."""
    for info in filesystem.get_file_info(pafs.FileSelector(folder)):
        name = info.base_name.removeprefix(file_names.UNFINISHED)
        file = file_names.read_path(f"{file_names.OBS}/host=x/day=0000-00-00/{name}")
        if name != info.base_name and file is not None and file.last is not None:
            filesystem.delete_file(info.path)


@contextlib.contextmanager
def _only_one(filesystem: pafs.FileSystem, folder: str) -> Iterator[bool]:
    """Whether no other process merges files of this host; known on local disks only."""
    if not isinstance(filesystem, pafs.LocalFileSystem) or not os.path.isdir(folder):
        yield True
        return
    # Any user who can read the folder could hold a lock on the folder itself.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(os.path.join(folder, _LOCK), flags, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            pass
        yield True
    finally:
        os.close(descriptor)
