"""Logs become files beside the recording; what cannot be written now is written later, what never can is set aside."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from bccnd.errors import JournalError
from bccnd.recorder.convert import Converted, convert
from bccnd.recorder.retention import Keep
from bccnd.recorder.spool import MAX_BAD, Spool
from bccnd.recorder.worker import Worker
from tests.recorder.material import JOURNAL, NOON, names, packet, table, write_log
from tests.support import wait


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def log_in(spool: Path, number: int, first: int = 1) -> Path:
    path = spool / f"{JOURNAL}-{number:08d}.log"
    write_log(path, [packet(range(10), NOON)], first=first, alive=[NOON + number])
    return path


def done(spool: Path, journal: str, keep: Keep | None = None) -> Worker:
    """What a start does with what was left, and nothing else."""
    opened = Spool(str(spool))
    worker = Worker(opened, journal, "relay01", keep or Keep())
    worker.start()
    worker.end()
    wait(lambda: worker.done, "the worker")
    opened.close()
    return worker


@pytest.mark.parametrize("way", [str, lambda path: f"file://{path}"])
def test_what_was_left_is_put_into_the_journal(spool: Path, tmp_path: Path, way: Callable[[Path], str]) -> None:
    journal = tmp_path / "journal"
    log_in(spool, 1)
    log_in(spool, 2, first=11)
    (spool / "somebody-elses.file").touch()
    worker = done(spool, way(journal))
    assert (worker.recovered, worker.rows, worker.files, worker.bad, worker.trouble) == (2, 20, 2, 0, "")
    assert [row["rec_no"] for row in table(journal)] == list(range(1, 21))
    assert names(spool) == ["lock", "somebody-elses.file"]


def test_a_bad_log_is_set_aside_and_those_behind_it_are_not_held_up(
    spool: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, torn = log_in(spool, 1), log_in(spool, 2, first=11)
    data = bytearray(bad.read_bytes())
    data[-5] ^= 1
    bad.write_bytes(data)
    torn.write_bytes(torn.read_bytes()[:-3])
    log_in(spool, 3, first=21)
    (spool / f"{JOURNAL}-00000004.log").write_bytes(b"nothing that we have ever written")
    (spool / f"{JOURNAL}-00000005.log").touch()
    with caplog.at_level(logging.INFO, logger="bccnd"):
        worker = done(spool, str(tmp_path / "journal"))
    assert (worker.bad, worker.torn, worker.rows) == (2, 1, 30)
    assert names(spool) == [f"{JOURNAL}-00000001.log.bad", f"{JOURNAL}-00000004.log.bad", "lock"]
    assert (spool / f"{JOURNAL}-00000001.log.bad").read_bytes() == data
    assert caplog.text.count("was set aside") == 2


def test_a_journal_that_is_away_is_waited_for(
    spool: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.recorder.worker.RETRY", 0.05)
    journal = tmp_path / "journal"
    journal.write_text("a file, where a folder should be")
    log_in(spool, 1)
    opened = Spool(str(spool))
    with caplog.at_level(logging.INFO, logger="bccnd"):
        worker = Worker(opened, str(journal), "relay01", Keep())
        worker.start()
        wait(lambda: worker.trouble, "trouble")
        assert worker.pending > 0
        worker.add(str(log_in(spool, 2, first=11)), 10)
        journal.unlink()
        wait(lambda: not worker.logs, "the journal to be reached")
        wait(lambda: not worker.trouble)
    worker.end()
    wait(lambda: worker.done)
    opened.close()
    assert len(table(journal)) == 20
    assert caplog.text.count("cannot be written to") == 1
    assert caplog.text.count("can be written to again") == 1


def test_what_cannot_be_written_at_the_end_waits_for_the_next_start(spool: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("a file, where a folder should be")
    log_in(spool, 1)
    assert done(spool, str(journal)).logs == 1
    journal.unlink()
    assert done(spool, str(journal)).logs == 0
    assert len(table(journal)) == 10


def test_a_bug_with_one_log_is_no_end_of_the_others(
    spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails_once(path: str, filesystem: pafs.FileSystem, root: str) -> Converted | None:
        if path.endswith("1.log"):
            raise RuntimeError("a bug")
        return convert(path, filesystem, root)

    monkeypatch.setattr("bccnd.recorder.worker.convert", fails_once)
    log_in(spool, 1)
    log_in(spool, 2)
    found = done(spool, str(tmp_path / "journal"))
    assert (found.bad, found.rows) == (1, 10)
    assert "please report it" in caplog.text


def test_old_files_go_after_new_ones_have_come(spool: Path, tmp_path: Path) -> None:
    log_in(spool, 1)
    log_in(spool, 2, first=11)
    assert done(spool, str(tmp_path / "journal"), Keep(size=1)).removed == 2


def test_two_recorders_on_one_spool_are_refused(spool: Path) -> None:
    first = Spool(str(spool))
    with pytest.raises(JournalError, match=r"another recorder writes to .*\n  remedy: let one recorder do"):
        Spool(str(spool))
    first.close()
    Spool(str(spool)).close()


def test_a_spool_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match=r"cannot keep records in .*\n  remedy: .*--spool"):
        Spool(str(tmp_path / "file/spool"))


def test_bad_files_are_kept_up_to_a_number(spool: Path) -> None:
    opened = Spool(str(spool))
    for number in range(MAX_BAD + 3):
        opened.set_aside(str(log_in(spool, number)))
    opened.close()
    kept = [name for name in names(spool) if name.endswith(".bad")]
    assert len(kept) == MAX_BAD
    assert kept[0] == f"{JOURNAL}-00000003.log.bad"
