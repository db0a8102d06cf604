"""What a journal has, whatever else lies there, and whatever its recorders do meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from bccnd.journal.session_files import write_sessions
from bccnd.journal.sessions import RecorderSession as Stretch
from bccnd.pipeline.inputs import journal as journals
from bccnd.pipeline.inputs.journal import Journal, Known, read_journal
from bccnd.pipeline.inputs.journal_listing import FinalDays, ListedFile, Listing, list_records
from bccnd.pipeline.inputs.verification import verify
from bccnd.pipeline.lake.place import Root
from tests.pipeline import object_store
from tests.pipeline.journals import put, row, rows
from tests.support import need_root, without_root

HERE = pafs.LocalFileSystem()
#: the day of the first rows, and the next one
DAY, NEXT = "2023-11-14", "2023-11-15"


def read(where: Path | str, found: Journal | None = None) -> Journal:
    """Take stock of a journal, again if it was ``found`` before; other files than those are read."""
    root = Root(str(where))
    return read_journal(root, lambda files: verify(root, files), known_of(found) if found else None)


def known_of(found: Journal) -> Known:
    return Known({file.listed: file for file in found.files}, found.sessions, found.damaged, found.missing)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    for host in ("h1", "h2"):
        put(tmp_path, host, "j1", 1, rows(1, 3))
        put(tmp_path, host, "j1", 4, [row(number, at=7200 + number) for number in range(4, 7)])
    return tmp_path


def test_what_is_foreign_is_skipped(full: Path) -> None:
    folder = full / f"obs/host=h1/day={DAY}"
    file = next(folder.glob("*.parquet"))
    for place in (
        full / "obs/x.parquet",
        full / "obs/host=h1/x.parquet",
        folder / f".{file.name}",
        folder / "_SUCCESS",
    ):
        place.write_bytes(b"x")
    for folder_name in (
        "obs/lost+found",
        "obs/host=h1/lost+found",
        "obs/host=a b/day=2023-11-14",
        "sessions/lost+found",
    ):
        (full / folder_name).mkdir(parents=True)
        (full / folder_name).chmod(0)
    (full / os.fsdecode(b"obs/host=\xff")).mkdir()
    (folder / "link.parquet").symlink_to("nowhere")
    found = read(full)
    assert (len(found.files), found.damaged) == (4, [])
    # one that was renamed may be needed
    file.rename(folder / "copy.parquet")
    assert "copy.parquet is left out: its name" in read(full).damaged[0].why


def test_a_user_who_is_not_root_reads_beside_what_he_may_not(full: Path) -> None:
    need_root("only root can become another user")
    (full / "obs/lost+found").mkdir(mode=0o700)
    (full / "obs/host=h2").chmod(0o700)
    for folder in full.parents:
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    with without_root(full):
        found = read(full)
    assert [file.host for file in found.files] == ["h1", "h1"]
    assert {file.host for file in found.damaged} == {"h2"}


def test_a_file_is_read_once_unless_it_is_written_again(full: Path) -> None:
    path = next((full / "obs/host=h1").rglob("*.parquet"))
    good = path.read_bytes()
    status = path.stat()
    path.write_bytes(good[:-9] + b"x" + good[-8:])
    first = read(full)
    (damaged,) = first.damaged
    assert damaged.path in str(path)

    def refuse(files: object) -> list[None]:
        assert not files
        return []

    root = Root(str(full))
    again = read_journal(root, refuse, known_of(first))  # type: ignore[arg-type]
    assert again == first
    # repaired as rsync does it: with the same size and time
    beside = path.with_name(".repaired")
    beside.write_bytes(good)
    os.utime(beside, ns=(status.st_atime_ns, status.st_mtime_ns))
    beside.rename(path)
    repaired = read(full, first)
    assert (repaired.damaged, len(repaired.files)) == ([], 4)


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_final_days_are_listed_only_if_their_folder_changed(
    full: Path, place: str, request: pytest.FixtureRequest
) -> None:
    where = str(full)
    if place == "s3":
        where = object_store.place(request.getfixturevalue("s3"), full.name)
        pafs.copy_files(str(full), Root(where).path, destination_filesystem=Root(where).filesystem)

    def listed(first: str, since: int) -> Listing:
        return list_records(Root(where), FinalDays(first, NEXT, since))

    assert [len(part) for part in (listed("", 0).files, listed("", 0).final)] == [2, 2]
    assert [len(part) for part in (listed("", 1 << 62).files, listed("", 1 << 62).final)] == [2, 0]
    # a clock that was wrong, before all days of the tables
    assert len(listed(NEXT, 0).files) == 4
    assert {type(file) for file in listed("", 0).files} == {ListedFile}


def recorded(journal: Path, *spans: tuple[int, int, int, int]) -> None:
    """The recorder writes its sessions."""
    sessions = [Stretch(start, end, first=first, last=last, cause="start") for start, end, first, last in spans]
    write_sessions(HERE, str(journal), "h1", "j1", "1", sessions)


def meanwhile(journal: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[tuple[int, int]]:
    """The sessions of a journal whose recorder does something while its files are listed."""

    def listing(root: Root, final: FinalDays) -> Listing:
        listed = list_records(root, final)
        act()
        return listed

    with monkeypatch.context() as patch:
        patch.setattr(journals, "list_records", listing)
        return [(session.start_us, session.end_us) for session in read(journal).sessions]


def test_what_is_finished_meanwhile_waits_for_the_next_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "h1", "j1", 1, rows(1, 3))
    recorded(tmp_path, (10, 20, 1, 3))
    later = ((10, 50, 1, 9), (60, 70, 10, 12))
    assert meanwhile(tmp_path, monkeypatch, lambda: recorded(tmp_path, *later)) == [(10, 20)]
    assert meanwhile(tmp_path, monkeypatch, lambda: None) == [(10, 50), (60, 70)]


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_sessions_that_cannot_be_read_are_named(full: Path, content: bytes) -> None:
    recorded(full, (10, 20, 1, 6))
    path = next((full / "sessions").rglob("*.parquet"))
    path.write_bytes(content)
    found = read(full)
    assert [file.path for file in found.damaged] == [str(path.relative_to(full))]
