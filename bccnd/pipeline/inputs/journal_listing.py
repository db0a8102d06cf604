"""Lists the files of a journal by their names, without opening them.

What is not named as a recorder names it is skipped. Folders of final days are not listed unless they have changed, and
nothing but names is taken from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.pipeline.lake.place import Entry, Root

_DAY: Final = re.compile(r"day=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_HOST: Final = "host="
#: hosts listed side by side: waiting for a disk or a store, not computing
_THREADS: Final = 8


class ListedFile(NamedTuple):
    """A finished file: its path below the journal, and what changes when it is written again. The ``tag`` is the time
    at which a disk has changed the file or its name: a repair by rsync keeps size and time."""

    path: str
    size: int
    mtime_ns: int
    tag: str


class FinalDays(NamedTuple):
    """The days from ``first`` on and before ``end``, and since when (nanoseconds) a change in them matters."""

    first: str
    end: str
    since_ns: int

    def has(self, day: str) -> bool:
        return self.first <= day < self.end


#: no day is final
NONE: Final = FinalDays("", "", 0)


@dataclass
class Listing:
    """What a journal has: ``files`` with records, sorted; ``final`` are paths of files of final days whose folder has
    changed, ``unknown`` Parquet files with other names, and ``unreadable`` the hosts that cannot be listed, and why."""

    files: list[ListedFile] = field(default_factory=list)
    final: list[str] = field(default_factory=list)
    unknown: list[ListedFile] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def require_journal(root: Root) -> None:
    """Check that a folder is a journal. Raises PipelineError: no_journal; OSError, pa.ArrowException."""
    if file_names.OBS not in root.names():
        raise PipelineError(
            "no_journal",
            f"no journal at {root.where}: it has no folder {file_names.OBS}",
            "name the folder that a recorder writes to (recorder.journal), or make one: bccn pipeline ingest",
        )


def list_records(root: Root, final: FinalDays = NONE) -> Listing:
    """List the files with records. Raises PipelineError: no_journal; OSError, pa.ArrowException."""
    require_journal(root)
    listing = Listing()
    with ThreadPoolExecutor(_THREADS) as pool:
        for host, found in pool.map(lambda host: (host, _list_host(root, host, final)), hosts(root, file_names.OBS)):
            if isinstance(found, OSError):
                listing.unreadable[host] = f"{found.filename or root.at(host)}: {found.strerror or found}"
                continue
            listing.files += found.files
            listing.final += found.final
            listing.unknown += found.unknown
    listing.files.sort()
    return listing


def hosts(root: Root, under: str) -> list[str]:
    """The hosts that have a folder there."""
    names = (name.removeprefix(_HOST) for name in root.folders(under) if name.startswith(_HOST))
    return [name for name in names if file_names.is_host(name)]


def list_sessions(root: Root) -> list[ListedFile]:
    """List the files of sessions. Raises OSError, pa.ArrowException."""
    folders = [f"{file_names.SESSIONS}/{_HOST}{host}" for host in hosts(root, file_names.SESSIONS)]
    return [file for folder in folders for file in _finished(folder, root.entries(folder))]


def _list_host(root: Root, host: str, final: FinalDays) -> Listing | OSError:
    listing = Listing()
    try:
        for folder, entries in _days(root, f"{file_names.OBS}/{_HOST}{host}", final):
            is_final = final.has(folder.rpartition("=")[2])
            for file in _finished(folder, entries):
                name = file_names.read_path(file.path)
                if name is None:
                    listing.unknown.append(file)
                elif is_final:
                    listing.final.append(file.path)
                else:
                    listing.files.append(file)
    except OSError as error:
        return error
    return listing


def _days(root: Root, place: str, final: FinalDays) -> Iterator[tuple[str, Iterable[Entry]]]:
    """The folders of days of a host that are to be looked at, and what is in them."""
    if not root.is_local:
        # One listing of all days takes fewer requests than one for each.
        by_folder: dict[str, list[Entry]] = {}
        for path, size, mtime_ns in root.files(place):
            folder, _, name = path.rpartition("/")
            day = _DAY.fullmatch(folder.rpartition("/")[2])
            if day and folder == f"{place}/{day[0]}" and not (final.has(day[1]) and mtime_ns < final.since_ns):
                by_folder.setdefault(folder, []).append(Entry(name, False, size, mtime_ns, ""))
        yield from by_folder.items()
        return
    for entry in root.entries(place):
        day = _DAY.fullmatch(entry.name)
        # A folder keeps the time of the disk's own clock, whatever a program that copies sets.
        if entry.is_folder and day and not (final.has(day[1]) and int(entry.tag) < final.since_ns):
            yield f"{place}/{entry.name}", root.entries(f"{place}/{entry.name}")


def _finished(folder: str, entries: Iterable[Entry]) -> Iterator[ListedFile]:
    for entry in entries:
        if not entry.is_folder and entry.name.endswith(".parquet") and not entry.name.startswith((".", "_")):
            yield ListedFile(f"{folder}/{entry.name}", entry.size, entry.mtime_ns, entry.tag)
