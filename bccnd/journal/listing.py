"""Lists the files with records of a journal, from their names alone; none is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import pyarrow.fs as pafs

from bccnd.journal import file_names


class ListedFile(NamedTuple):
    """A complete file with records; ``size`` in bytes, ``written`` in seconds since 1970."""

    file: file_names.ObsFile
    size: int
    written: float


def list_files(
    filesystem: pafs.FileSystem,
    root: str,
    *,
    hosts: Collection[str] | None = None,
    first_day: str = "",
    last_day: str = "9999-99-99",
) -> list[ListedFile]:
    """List the files of these hosts (None: all) and days, ordered by host, day, journal and number; merged files and
    those that they were made of. Raises OSError."""
    found = []
    for host in folders(filesystem, f"{root}/{file_names.OBS}", "host="):
        if hosts is None or host in hosts:
            place = f"{file_names.OBS}/host={host}"
            for day in folders(filesystem, f"{root}/{place}", "day="):
                if first_day <= day <= last_day:
                    found += list_day(filesystem, root, f"{place}/day={day}")
    return found


def list_day(filesystem: pafs.FileSystem, root: str, folder: str) -> list[ListedFile]:
    """List the files in the folder of a host and a day, by its path below the journal. Raises OSError."""
    found = []
    for info in filesystem.get_file_info(pafs.FileSelector(f"{root}/{folder}", allow_not_found=True)):
        file = file_names.read_path(f"{folder}/{info.base_name}") if info.type == pafs.FileType.File else None
        if file is not None and file.path == f"{folder}/{info.base_name}":
            found.append(ListedFile(file, int(info.size or 0), (info.mtime_ns or 0) / 1e9))
    return sorted(found, key=lambda one: one.file[2:4])


def current(listed: Iterable[ListedFile]) -> list[ListedFile]:
    """Return the files to read: without those whose records are in a merged file, too."""
    listed = list(listed)
    superseded = file_names.superseded(one.file for one in listed)
    return [one for one in listed if one.file not in superseded]


def folders(filesystem: pafs.FileSystem, place: str, prefix: str) -> Iterator[str]:
    """Yield the values of the folders ``<prefix><value>`` in a folder, in order. Raises OSError."""
    found = filesystem.get_file_info(pafs.FileSelector(place, allow_not_found=True))
    for name in sorted(one.base_name for one in found if one.type == pafs.FileType.Directory):
        if name.startswith(prefix):
            yield name.removeprefix(prefix)
