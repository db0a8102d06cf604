"""Sessions never cover records that are in none of the files listed, whatever a recorder does meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from bccnd.journal.session_files import write_sessions
from bccnd.journal.sessions import Session as Stretch
from bccnd.pipeline.inputs import session_files
from bccnd.pipeline.inputs.journal_files import Journal
from bccnd.pipeline.inputs.session_files import open_journal
from tests.pipeline.journals import put, rows

HERE = pafs.LocalFileSystem()


def recorded(journal: Path, *spans: tuple[int, int]) -> None:
    """The recorder writes its sessions."""
    write_sessions(HERE, str(journal), "h1", "j1", "1", [Stretch(*span, cause="start") for span in spans])


def opened(journal: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> list[tuple[int, int]]:
    """The sessions of a journal whose recorder does something while its files are listed."""

    def listing(where: str, **given: Any) -> Journal:
        listed = Journal(where, **given)
        meanwhile()
        return listed

    with monkeypatch.context() as patch:
        patch.setattr(session_files, "Journal", listing)
        return [(session.start, session.end) for session in open_journal(str(journal))[1]]


def test_what_is_finished_meanwhile_waits_for_the_next_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "h1", "j1", 1, rows(1, 3))
    recorded(tmp_path, (10, 20))
    assert opened(tmp_path, monkeypatch, lambda: recorded(tmp_path, (10, 50), (60, 70))) == [(10, 20)]
    assert opened(tmp_path, monkeypatch, lambda: None) == [(10, 50), (60, 70)]


def test_what_retention_takes_meanwhile_is_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "h1", "j1", 1, rows(1, 3))
    recorded(tmp_path, (10, 20), (30, 40), (50, 60))
    assert opened(tmp_path, monkeypatch, lambda: recorded(tmp_path, (35, 40), (50, 70))) == [(35, 40), (50, 60)]
    sessions = tmp_path / "sessions"
    assert opened(tmp_path, monkeypatch, lambda: shutil.rmtree(sessions)) == []
