"""What a journal holds for how long.

Law: only whole files go, oldest first, of our own host, and only such as were named by us. Nobody is left saying that
we listened at a time whose records are gone: that goes first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal import files, layout
from bccnd.recorder.convert import read_stretches, sessions_table
from bccnd.recorder.keep import Keep
from bccnd.recorder.stretch import Head, Stretch
from bccnd.version import VERSION


class _Held(NamedTuple):
    name: layout.ObsFile
    size: int
    #: seconds since 1970 at which it was finished
    finished: float


def held(filesystem: pafs.FileSystem, root: str, host: str) -> list[_Held]:
    """The files with records of a host, oldest first."""
    found = []
    for info in filesystem.get_file_info(_below(f"{root}/{layout.OBS}/host={host}")):
        path = info.path.removeprefix(root.rstrip("/") + "/")
        name = layout.read_path(path)
        if info.type == pafs.FileType.File and name is not None and name.host == host and name.path == path:
            found.append(_Held(name, info.size or 0, (info.mtime_ns or 0) / 1e9))
    return sorted(found, key=lambda one: (one.name.day, one.name.journal_id, one.name.first))


def _below(folder: str) -> pafs.FileSelector:
    return pafs.FileSelector(folder, recursive=True, allow_not_found=True)


def retain(
    filesystem: pafs.FileSystem, root: str, host: str, keep: Keep, now: float, current: str = ""
) -> tuple[int, int]:
    """Remove what is too old or too much; how many files and bytes went. ``current`` is the journal that is written.
    Raises OSError."""
    if not keep.age and not keep.size:
        return 0, 0
    there = held(filesystem, root, host)
    total = sum(one.size for one in there)
    going: list[_Held] = []
    for one in there:
        too_old = keep.age and one.finished < now - keep.age
        if not too_old and not (keep.size and total > keep.size):
            break
        going.append(one)
        total -= one.size
    staying = {one.name.journal_id for one in there[len(going) :]}
    for journal in dict.fromkeys(one.name.journal_id for one in going):
        last = max(_latest(filesystem, root, one.name) for one in going if one.name.journal_id == journal)
        whole = journal not in staying and journal != current
        _forget(filesystem, root, host, journal, None if whole else last + 1)
    for one in going:
        filesystem.delete_file(f"{root}/{one.name.path}")
    _without_records(filesystem, root, host, staying | {current}, now - keep.age if keep.age else None)
    _sweep(filesystem, root, {one.name.path.rpartition("/")[0] for one in going})
    return len(going), sum(one.size for one in going)


def _latest(filesystem: pafs.FileSystem, root: str, name: layout.ObsFile) -> int:
    """The time of the latest record of a file; nothing later than 0 where it cannot be read any more."""
    try:
        with filesystem.open_input_file(f"{root}/{name.path}") as file:
            times = pq.read_table(file, columns=["ts"]).column("ts").cast(pa.int64())
    except (OSError, ValueError, KeyError):
        return 0
    return int(pc.max(times).as_py() or 0)


def _forget(filesystem: pafs.FileSystem, root: str, host: str, journal: str, before: int | None) -> None:
    """Claim nothing of a journal before a time; None: nothing at all."""
    path = layout.sessions_path(host, journal)
    place = f"{root}/{path}"
    if before is None:
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(place)
        return
    stretches = read_stretches(filesystem, place)
    left = [
        one if one.start >= before else Stretch(before, one.end, one.socket_drops, one.tap_gaps)
        for one in stretches
        if one.end > before
    ]
    if left and left != stretches:
        files.write(filesystem, root, path, sessions_table(Head(host, journal, 1, VERSION), left))
    elif stretches and not left:
        # Of the journal that is written nothing is left for now; its next file says again when it was listening, and
        # must know from when on.
        end = Stretch(before, before)
        files.write(filesystem, root, path, sessions_table(Head(host, journal, 1, VERSION), [end]))


def _without_records(
    filesystem: pafs.FileSystem, root: str, host: str, staying: Iterable[str], before: float | None
) -> None:
    """Remove what is said of journals that never had records, once they are as old as records may be."""
    if before is None:
        return
    for info in filesystem.get_file_info(_below(f"{root}/{layout.SESSIONS}/host={host}")):
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
