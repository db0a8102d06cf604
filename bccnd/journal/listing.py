"""Lists the files with records of a journal, from their names alone; none is opened."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import pyarrow.fs as pafs

from bccnd.journal import file_names, files


class ListedFile(NamedTuple):
    """A complete file with records; ``size`` in bytes, ``written`` in seconds since 1970."""

    name: file_names.ObsFile
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
    """List the files of these hosts (None: all) and days, ordered by host, day, journal and number. Raises OSError."""
    listed = []
    for host in _folders(filesystem, f"{root}/{file_names.OBS}", "host="):
        if hosts is not None and host not in hosts:
            continue
        for day in _folders(filesystem, f"{root}/{file_names.OBS}/host={host}", "day="):
            folder = f"{file_names.OBS}/host={host}/day={day}"
            if first_day <= day <= last_day:
                for info in files.entries(filesystem, pafs.FileSelector(f"{root}/{folder}", allow_not_found=True)):
                    name = file_names.read_path(f"{folder}/{info.base_name}")
                    if (
                        info.type == pafs.FileType.File
                        and name is not None
                        and name.path.endswith(f"/{info.base_name}")
                    ):
                        listed.append(ListedFile(name, int(info.size or 0), (info.mtime_ns or 0) / 1e9))
    return sorted(listed)


def _folders(filesystem: pafs.FileSystem, place: str, prefix: str) -> Iterator[str]:
    """Yield the values of the folders ``<prefix><value>`` in a folder, in order. Raises OSError."""
    entries = files.entries(filesystem, pafs.FileSelector(place, allow_not_found=True))
    for name in sorted(entry.base_name for entry in entries if entry.type == pafs.FileType.Directory):
        if name.startswith(prefix):
            yield name.removeprefix(prefix)
