"""The incremental run: in whatever order files come, and whatever kills it, the tables are those of a build."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from bccnd.pipeline.driver.build import once
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from bccnd.recorder.retention import retain
from tests.pipeline.journals import T, put, row
from tests.pipeline.threedays import DAY, HOSTS, START, arrive, content, files

HERE = EmbeddedRunner()
#: tables of which a row can be on another day than the records that it follows from
WHOLE = ("epochs", "liveness")


def test_files_in_any_order_give_the_tables_of_a_build(small: Path, built: Path, tmp_path: Path) -> None:
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    (journal / "obs").mkdir(parents=True)
    # The host that is late has the earliest day of all; it comes after the others have gone on to the third.
    late = [path for path in files(small) if "host=h2" in str(path) and "day=2026-03-01" in str(path)]
    rest = [path for path in files(small) if path not in late]
    random.Random(7).shuffle(rest)
    half = len(rest) // 2
    assert late
    for chunk in (rest[:half], rest[half:], late):
        for path in chunk:
            arrive(small, journal, path)
        if chunk is rest[:half]:
            for path in (small / "sessions").rglob("*.parquet"):
                if "host=h3" not in str(path):
                    arrive(small, journal, path)
        if chunk is late:
            shutil.copytree(small / "sessions", journal / "sessions", dirs_exist_ok=True)
        assert once(HERE, str(journal), str(tables)).days
    assert content(tables) == content(built)
    assert all(content(built).values())
    # and there is nothing left to do
    assert once(HERE, str(journal), str(tables)).days == []


def test_what_retention_takes_stays_in_the_tables(
    small: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (str(shutil.copytree(small, tmp_path / "journal")), str(tmp_path / "tables"))
    journal = Path(words[0])
    last = files(journal)[-1]
    last.unlink()
    assert once(HERE, *words).days == ["2026-03-01", "2026-03-02", "2026-03-03"]
    # Days are days of UTC, wherever this host is.
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        for path in files(journal):
            if "day=2026-03-01" in str(path):
                os.utime(path, (0, 0))
        for host in HOSTS:
            assert retain(pafs.LocalFileSystem(), str(journal), host, DAY, 0, time.time())[0]
        assert once(HERE, *words).days == []
        before = content(words[1])
        # A file for a day of which records are gone, and one for a day that is whole, which begins near to midnight.
        put(journal, "h4", "late", 1, [row(1, at=START + 0.6 * DAY - T / 1e9)])
        arrive(small, journal, small / last.relative_to(journal))
        outcome = once(HERE, *words)
        assert (outcome.days, outcome.left) == (["2026-03-03"], ["2026-03-01", "2026-03-02"])
        again = once(HERE, *words)
        assert (again.days, again.left) == ([], [])
    finally:
        monkeypatch.undo()
        time.tzset()
    expected, updated = content(built), content(words[1])
    for name, rows in expected.items():
        if name not in WHOLE:
            rows = [row for row in before[name] if str(row[-1]) < "2026-03-03"] + [
                row for row in rows if str(row[-1]) == "2026-03-03"
            ]
        assert updated[name] == sorted(rows, key=repr), name


def once_only(step: str, change: Callable[[], object]) -> Callable[[str], None]:
    """Progress that changes something when a step is reached for the first time."""
    changes = [change]

    def progress(reached: str) -> None:
        if reached == step and changes:
            changes.pop()()

    return progress


def test_what_retention_takes_during_a_run_stays_in_the_tables(small: Path, built: Path, tmp_path: Path) -> None:
    journal = Path(shutil.copytree(small, tmp_path / "journal"))
    tables = str(tmp_path / "tables")
    once(HERE, str(journal), tables)
    put(journal, "h4", "late", 1, [row(1, at=START + 0.6 * DAY - T / 1e9)])
    outcome = once(HERE, str(journal), tables, progress=once_only("comparing clocks", files(journal)[0].unlink))
    assert (outcome.days, outcome.left) == ([], ["2026-03-01"])
    assert content(tables) == content(built)
