"""Takes stock of a journal: which files can be used, what is missing, and when its receivers were listening."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import pyarrow.fs as pafs

from bccnd.journal import file_names
from bccnd.pipeline.inputs import coverage, sessions
from bccnd.pipeline.inputs.coverage import Before, DamagedFile, Missing
from bccnd.pipeline.inputs.file_checks import changed
from bccnd.pipeline.inputs.journal_listing import NONE, FinalDays, ListedFile, Listing, list_records, list_sessions
from bccnd.pipeline.inputs.sessions import JournalSession
from bccnd.pipeline.inputs.verification import JournalFile
from bccnd.pipeline.lake.place import Root, usable

#: how the reason begins why a file is not used now: with others that come or go, it may be
UNKNOWN_CLOCK: Final = "unknown clock: "
REPEATED: Final = "records that are there twice: "

Verify = Callable[[Sequence[ListedFile]], list[JournalFile | str | None]]


@dataclass
class Known:
    """What the last run knew of a journal: files that were usable, and others as in `Journal`."""

    files: dict[ListedFile, JournalFile] = field(default_factory=dict)
    sessions: list[JournalSession] = field(default_factory=list)
    damaged: list[DamagedFile] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)


@dataclass
class Journal:
    """``files`` can be used; ``listed`` are the paths of all that are there, usable or not, ``final`` those of final
    days that may be new. ``sessions`` are as the journal has them, with numbers."""

    files: list[JournalFile] = field(default_factory=list)
    listed: set[str] = field(default_factory=set)
    final: list[str] = field(default_factory=list)
    sessions: list[JournalSession] = field(default_factory=list)
    damaged: list[DamagedFile] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)


def read_journal(
    root: Root,
    verify: Verify,
    known: Known | None = None,
    final: FinalDays = NONE,
    lost: Mapping[str, str] = MappingProxyType({}),
) -> Journal:
    """Take stock of a journal; files that are ``known`` are not read again, and those of ``final`` days not at all.
    ``lost`` names hosts at which retention is at work, and the day up to which it takes their files. Raises
    PipelineError: no_place, no_journal, changed."""
    with usable(root.where):
        found = Journal()
        found.sessions, unreadable = sessions.read(root, list_sessions(root))
        listing = list_records(root, final)
        found.final = listing.final
        _leave_out(listing, found, lost)
        found.listed = {file.path for file in listing.files}
        found.damaged = [_damaged(root, file, why) for file, why in unreadable.items()]
        found.damaged += [_damaged(root, file, "its name is not that of a recorder's file") for file in listing.unknown]
        found.damaged += [
            DamagedFile(f"{file_names.OBS}/host={host}", 0, 0, "", f"{host} is left out: {why}", host)
            for host, why in listing.unreadable.items()
        ]
        _check_files(root, listing.files, found, verify, known or Known(), final)
    return found


def _leave_out(listing: Listing, found: Journal, lost: Mapping[str, str]) -> None:
    """Leave out hosts that cannot be read, and the days of those at which retention is at work."""
    days = ((file, file_names.read_path(file.path)) for file in listing.files)
    listing.files = [file for file, name in days if name is not None and name.day > lost.get(name.host, "")]
    ends = {host: file_names.start_of(day) + file_names.DAY for host, day in lost.items()}
    found.sessions = [
        part
        for session in found.sessions
        if session.host not in listing.unreadable
        for part in (sessions.clipped([session], ends[session.host]) if session.host in ends else [session])
    ]


def _check_files(
    root: Root,
    listed: Sequence[ListedFile],
    found: Journal,
    verify: Verify,
    known: Known,
    final: FinalDays,
) -> None:
    """Verify what is not known, and find what is missing."""
    remembered = {ListedFile(*file[:4]): file for file in known.damaged if file.journal_id}
    # Other files may make up for these.
    remembered = {file: row for file, row in remembered.items() if not row.why.startswith(REPEATED)}
    if any(file not in known.files and file not in remembered for file in listed):
        remembered = {file: row for file, row in remembered.items() if not row.why.startswith(UNKNOWN_CLOCK)}
    new = [file for file in listed if file not in known.files and file not in remembered]
    usable_files = [known.files[file] for file in listed if file in known.files]
    damaged = [remembered[file] for file in listed if file in remembered and file not in known.files]
    for file, seen in zip(new, verify(new), strict=True):
        if isinstance(seen, JournalFile):
            usable_files.append(seen)
        elif seen is None:
            raise changed(root.at(file.path))
        else:
            damaged.append(_damaged(root, file, seen))
    twins = coverage.repeated(usable_files)
    for twin, other in twins.items():
        damaged.append(_damaged(root, twin.listed, f"it has the same records as {root.at(other.path)}", REPEATED))
    found.files = sorted(file for file in usable_files if file not in twins)
    found.sessions = sessions.number(found.sessions, found.files)
    before = Before(known.sessions, known.missing, file_names.start_of(final.end) if final.end else 0)
    found.missing, damaged = coverage.find_missing(found.files, damaged, found.sessions, before)
    found.damaged = sorted({*found.damaged, *damaged, *_of_final_days(root, known.damaged, final)})


def _of_final_days(root: Root, damaged: Iterable[DamagedFile], final: FinalDays) -> list[DamagedFile]:
    """The damaged files of final days that are still there."""
    named = [(file, file_names.read_path(file.path)) for file in damaged]
    kept = [file for file, name in named if name is not None and final.has(name.day)]
    infos = root.filesystem.get_file_info([f"{root.path}/{file.path}" for file in kept])
    return [file for file, info in zip(kept, infos, strict=True) if info.type == pafs.FileType.File]


def _damaged(root: Root, file: ListedFile, why: str, cause: str = "") -> DamagedFile:
    name = file_names.read_path(file.path)
    parts = ("", "", 0) if name is None else (*name.journal, name.first)
    return DamagedFile(*file, f"{cause}{root.at(file.path)} is left out: {why}", *parts)


def unknown_clock(root: Root, file: JournalFile) -> DamagedFile:
    """A file that is left out because nothing tells how far its clock is off."""
    why = "its records are dated before 2020, and no other host's show what the time was"
    return _damaged(root, file.listed, why, UNKNOWN_CLOCK)
