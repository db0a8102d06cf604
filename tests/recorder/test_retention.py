"""Retention removes whole files of its own, the oldest first, and their time from the sessions."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from bccnd.journal import file_names
from bccnd.journal.listing import list_files
from bccnd.journal.sessions import RecorderSession
from bccnd.recorder.convert import update_sessions
from bccnd.recorder.retention import retain
from bccnd.recorder.sessions import Head
from tests.recorder.material import JOURNAL, NOON, convert_log, names, packet, table, write_log

HERE = pafs.LocalFileSystem()
SECOND = file_names.MICROSECONDS
#: in seconds, after all records of these tests
NOW = NOON / 1e6 + 250


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Three files of one journal, 100 s apart, of 10 records each; and files that are none of ours."""
    folder = tmp_path / "journal"
    for number in range(3):
        log = tmp_path / f"{number}.log"
        start = NOON + number * 100 * SECOND
        write_log(log, [packet(range(10), start)], first=1 + 10 * number, alive=[start + 50 * SECOND])
        convert_log(log, folder)
    day = folder / "obs/host=relay01/day=2026-11-21"
    (day / "notes.txt").write_text("mine")
    (day / "x.parquet").write_text("mine too")
    elsewhere = folder / "obs/host=relay02/day=2026-11-21"
    elsewhere.mkdir(parents=True)
    (elsewhere / f"{JOURNAL}-000000000001.parquet").write_bytes(b"x" * 100_000)
    os.utime(elsewhere / f"{JOURNAL}-000000000001.parquet", (1, 1))
    return folder


def keep(journal: Path, *rules: Any) -> tuple[int, int]:
    """What retention removes: files and bytes."""
    return retain(HERE, str(journal), "relay01", *rules)


def numbers(journal: Path) -> list[int]:
    return [file.name.first for file in list_files(HERE, str(journal), hosts=["relay01"])]


def session_left(journal: Path) -> tuple[float | None, ...]:
    """Start and end in seconds after noon, first and last number."""
    (session,) = table(journal, "sessions")
    times = (round(session[name].timestamp() - NOON / 1e6, 6) for name in ("start_ts", "end_ts"))
    return (*times, session["first_rec_no"], session["last_rec_no"])


#: of the end of a file: its last record comes 9 ms after its first
PAST = 0.009001


@pytest.mark.parametrize(
    ("limits", "left", "session"),
    [
        (lambda _: (0, 0), [1, 11, 21], (0, 250, 1, 30)),
        (lambda _: (50, 0), [21], (100 + PAST, 250, 21, 30)),
        (lambda _: (150, 0), [11, 21], (PAST, 250, 11, 30)),
        (lambda total: (0, total), [1, 11, 21], (0, 250, 1, 30)),
        (lambda total: (0, total - 1), [11, 21], (PAST, 250, 11, 30)),
        (lambda total: (150, total - 1), [11, 21], (PAST, 250, 11, 30)),
        (lambda _: (0, 1), [], (200 + PAST, 250, 31, 30)),
    ],
    ids=["no limit", "age 50", "age 150", "size", "size - 1", "both", "size 1"],
)
def test_the_oldest_files_go_and_their_time_from_the_session(
    journal: Path, limits: Callable[[int], tuple[int, int]], left: list[int], session: tuple[float | None, ...]
) -> None:
    sizes = [file.size for file in list_files(HERE, str(journal), hosts=["relay01"])]
    count, size = keep(journal, *limits(sum(sizes)), NOW, JOURNAL)
    assert (count, size) == (3 - len(left), sum(sizes[: 3 - len(left)]))
    assert numbers(journal) == left
    assert session_left(journal) == session
    # A later log of this journal does not claim it again.
    head = Head("relay01", JOURNAL, 31, "1", [RecorderSession(NOON, NOON + 400 * SECOND, first=1, last=35)])
    update_sessions(HERE, str(journal), head)
    assert session_left(journal) == (session[0], 400, session[2], 35)


def test_a_session_goes_with_the_last_file_of_its_journal(journal: Path, tmp_path: Path) -> None:
    assert keep(tmp_path / "nowhere", 1, 1, 0) == (0, 0)
    keep(journal, 0, 1, NOW, "another")
    assert (numbers(journal), table(journal, "sessions")) == ([], [])
    assert len(names(journal)) == 3  # files of others


def test_a_clock_that_is_ahead_makes_nothing_old(journal: Path) -> None:
    assert keep(journal, 1000, 0, NOW + 1e9) == (0, 0)
    assert numbers(journal) == [1, 11, 21]
    # Nor does a newest record from a time when the clock was ahead.
    log = journal.parent / "ahead.log"
    write_log(log, [packet([1], NOON + 10**9 * SECOND)], first=31)
    convert_log(log, journal)
    assert keep(journal, 1000, 0, NOW) == (0, 0)
    assert keep(journal, 100, 0, NOW)[0] == 2


def test_of_a_file_that_is_damaged_nothing_is_claimed_on_its_day(journal: Path) -> None:
    first = sorted((journal / "obs/host=relay01/day=2026-11-21").glob("2*.parquet"))[0]
    first.write_bytes(b"PAR1 no more PAR1")
    size = sum(file.size for file in list_files(HERE, str(journal), hosts=["relay01"]))
    assert keep(journal, 0, size - 1, NOW, JOURNAL)[0] == 1
    assert numbers(journal) == [11, 21]
    assert session_left(journal) == (12 * 3600, 12 * 3600, 11, 30)


def test_what_cannot_be_read_now_stays_with_its_session(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = names(journal), table(journal, "sessions")
    with monkeypatch.context() as patch:
        patch.setattr(pq, "read_metadata", fail)
        with pytest.raises(OSError, match="Input/output error"):
            keep(journal, 50, 0, NOW, JOURNAL)
    assert (names(journal), table(journal, "sessions")) == before


def test_a_journal_without_records_goes_at_the_age_of_records(journal: Path) -> None:
    head = Head("relay01", "20200101T000000Z-00000000", 1, "1", [RecorderSession(1, 2)])
    update_sessions(HERE, str(journal), head)
    place = journal / file_names.sessions_path("relay01", head.journal)
    os.utime(place, (NOON / 1e6, NOON / 1e6))
    keep(journal, 10_000, 0, NOW)
    assert place.exists()
    keep(journal, 50, 0, NOW, JOURNAL)
    assert not place.exists()


def test_an_empty_day_goes_with_its_last_file(journal: Path) -> None:
    day = journal / "obs/host=relay01/day=2026-11-21"
    keep(journal, 0, 1, NOW)
    assert day.exists()  # foreign files are there
    for path in day.iterdir():
        path.unlink()
    log = journal.parent / "again.log"
    write_log(log, [packet([1], NOON)])
    convert_log(log, journal)
    keep(journal, 0, 1, NOW)
    assert not day.exists()


def test_sessions_of_an_older_version_have_all_of_their_journal(journal: Path) -> None:
    place = journal / file_names.sessions_path("relay01", JOURNAL)
    written = pq.read_table(place, partitioning=None)
    pq.write_table(written.drop_columns(["first_rec_no", "last_rec_no"]), place)
    assert keep(journal, 50, 0, NOW, JOURNAL)[0] == 2
    assert session_left(journal) == (100 + PAST, 250, 21, None)
