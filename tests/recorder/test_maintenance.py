"""Logs become files beside the recording; what cannot be written now is written later, what never can is set aside."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bccnd.config.recorder_schema import KeepSettings
from bccnd.errors import JournalError
from bccnd.journal.sessions import RecorderSession
from bccnd.recorder.clock_steps import ClockTrust
from bccnd.recorder.logfile import HEAD, ROWS, LogWriter
from bccnd.recorder.maintenance import Maintenance
from bccnd.recorder.rows import observations, pack
from bccnd.recorder.sessions import Head
from bccnd.recorder.spool import MAX_BAD, Spool
from tests.recorder.material import JOURNAL, NOON, end, names, packet, table, tapped, wait_for_child, write_log
from tests.support import ROOT


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


def log_in(spool: Path, number: int, first: int = 1) -> Path:
    path = spool / f"{JOURNAL}-{number:08d}.log"
    write_log(path, [packet(range(10), NOON)], first=first, alive=[NOON + number])
    return path


@contextmanager
def working(spool: Path, journal: Path | str, keep: KeepSettings | None = None) -> Iterator[Maintenance]:
    """A worker, to be started, which finishes in the end what waits."""
    opened = Spool(str(spool))
    worker = Maintenance(opened, str(journal), "relay01", keep or KeepSettings())
    yield worker
    end(worker)
    opened.close()


def done(spool: Path, journal: Path | str, keep: KeepSettings | None = None) -> Maintenance:
    """What a start does with what was left, and nothing else."""
    with working(spool, journal, keep) as worker:
        worker.start()
    return worker


def with_bug(path: Path) -> None:
    (row,) = observations(tapped(1, NOON))
    log = LogWriter(str(path))
    log.append(HEAD, Head("relay01", "bug", 1, "1", [RecorderSession(NOON, NOON)]).pack())
    log.append(ROWS, pack([row._replace(ts=2**62)]))  # no day has this time
    log.close()


def test_leftover_logs_are_converted_and_bad_ones_set_aside(spool: Path, tmp_path: Path) -> None:
    _, torn, damaged, gone = (log_in(spool, number, first=10 * number - 9) for number in (1, 2, 3, 4))
    foreign, empty, bug, zeros = (spool / f"{JOURNAL}-{number:08d}.log" for number in (5, 6, 7, 9))
    torn.write_bytes(torn.read_bytes()[:-3])
    data = bytearray(damaged.read_bytes())
    data[-5] ^= 1
    damaged.write_bytes(data)
    foreign.write_bytes(b"nothing that we have ever written")
    empty.touch()
    zeros.write_bytes(bytes(100))
    with_bug(bug)
    log_in(spool, 8, first=31)
    (spool / "other.file").touch()
    with working(spool, f"file://{tmp_path}/journal") as worker:
        gone.unlink()
        worker.start()
    assert (worker.rows, worker.files, worker.torn, worker.bad, worker.recovered) == (40, 4, 3, 3, 8)
    assert (worker.logs, worker.trouble) == (0, "")
    assert [row["rec_no"] for row in table(tmp_path / "journal")] == list(range(1, 41))
    kept = [f"{path.name}.bad" for path in (damaged, foreign, bug)]
    assert names(spool) == [*kept, "lock", "other.file"]
    assert (spool / kept[0]).read_bytes() == data
    assert not [name for name in names(tmp_path / "journal") if "/." in name]


def test_a_journal_that_is_away_is_waited_for(spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.recorder.maintenance.RETRY", 0.05)
    journal = tmp_path / "journal"
    journal.write_text("a file, where a folder should be")
    log_in(spool, 1)
    assert done(spool, journal).logs == 1  # at the end of a recorder: it waits for the next start
    with working(spool, journal) as worker:
        worker.start()
        wait_for_child(lambda: worker.trouble, "trouble")
        assert worker.pending > 0
        worker.add(str(log_in(spool, 2, first=11)), 10)
        journal.unlink()
        wait_for_child(lambda: not worker.logs, "the journal to be reached")
        wait_for_child(lambda: not worker.trouble, "the end of the trouble")
    assert len(table(journal)) == 20


@pytest.mark.usefixtures("real_process")
def test_a_log_over_which_processes_die_is_set_aside(
    spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.recorder.maintenance.RETRY", 0.05)
    monkeypatch.setattr("sys.executable", "/bin/false")
    log_in(spool, 1)
    with working(spool, tmp_path / "journal") as worker:
        worker.start()
        wait_for_child(lambda: not worker.logs, "the log to be set aside")
        monkeypatch.undo()
        worker.add(str(log_in(spool, 2)), 1)
    assert (worker.bad, worker.rows, worker.trouble) == (1, 10, "")


def _ignores(status: str) -> bool:
    (mask,) = re.findall(r"SigIgn:\t(\w+)", status)
    return all(int(mask, 16) >> number - 1 & 1 for number in (signal.SIGINT, signal.SIGTERM))


@pytest.mark.slow
def test_a_converting_process_waits_for_an_earlier_one(spool: Path, tmp_path: Path) -> None:
    with (spool / "lock.files").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = "from bccnd.recorder.converter_process import main; main()"
        command = [sys.executable, "-c", program, str(spool)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        status = Path(f"/proc/{process.pid}/status")
        wait_for_child(lambda: _ignores(status.read_text()), "signals to be ignored")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        log = spool / f"{JOURNAL}-00000001.log"
        request = {"journal": str(tmp_path / "journal"), "log": str(log)}
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        process.stdin = None
        log_in(spool, 1)
    assert json.loads(process.communicate()[0])["rows"] == 10


def test_no_file_goes_by_age_while_the_clock_is_doubted(spool: Path, tmp_path: Path) -> None:
    synchronised = False
    clock = ClockTrust(synchronised=lambda: synchronised)
    log_in(spool, 1)
    write_log(spool / f"{JOURNAL}-00000002.log", [packet(range(10), NOON - 10**12)], first=11)
    opened = Spool(str(spool))
    worker = Maintenance(opened, str(tmp_path / "journal"), "relay01", KeepSettings(age=1000), clock)
    worker.start()
    wait_for_child(lambda: not worker.logs, "the files")
    assert (worker.removed, bool(worker.doubt)) == (0, True)
    synchronised = True
    worker.add(str(log_in(spool, 3, first=21)), 1)
    end(worker)
    opened.close()
    assert (worker.removed, worker.doubt) == (1, "")


def test_a_spool_in_use_or_without_a_place_is_refused(spool: Path, tmp_path: Path) -> None:
    first = Spool(str(spool))
    with pytest.raises(JournalError, match=r"another recorder .*\n  remedy: "):
        Spool(str(spool))
    first.close()
    Spool(str(spool)).close()
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match=r"cannot keep .*\n  remedy: .*--spool"):
        Spool(str(tmp_path / "file/spool"))


def test_bad_files_are_kept_up_to_a_number(spool: Path) -> None:
    opened = Spool(str(spool))
    for number in range(MAX_BAD + 3):
        opened.set_aside(str(log_in(spool, number)))
    opened.close()
    assert opened.removed == 3
    kept = [name for name in names(spool) if name.endswith(".bad")]
    assert len(kept) == MAX_BAD
    assert kept[0] == f"{JOURNAL}-00000003.log.bad"
