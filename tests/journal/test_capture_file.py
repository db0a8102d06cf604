"""Captures by any name, and from streams, which are read once."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bccnd.errors import JournalError
from bccnd.journal.capture_import import CaptureSettings, ingest
from bccnd.journal.replay import Choice, Counts, read_messages
from tests.core.captures import pcap
from tests.e2e.harness import datagram
from tests.pipeline.journals import frame
from tests.support import PATIENCE, ROOT

SETTINGS = CaptureSettings("relay02")
DATA = pcap([frame(number, datagram("relay01/a/1", number + 1, "a/b", "x" * 1000)) for number in range(600)])
#: tcpdump's own rotation, and others
ODD = ("cap-2026-11-21T10:00:00.pcap", "a b", "a%20b", "a\nb", "-x", "file:x", "\udcff", "x:/y", "C:", "*[?]")


def stored(journal: Path) -> dict[str, bytes]:
    return {str(path.relative_to(journal)): path.read_bytes() for path in journal.rglob("*") if path.is_file()}


@pytest.fixture
def usual(tmp_path: Path) -> dict[str, bytes]:
    """The journal that is made of a plain file."""
    (tmp_path / "x.pcap").write_bytes(DATA)
    ingest([str(tmp_path / "x.pcap")], str(tmp_path / "usual"), SETTINGS)
    return stored(tmp_path / "usual")


def messages(where: str) -> int:
    return len(list(read_messages(where, Choice(), Counts(), SETTINGS)))


@pytest.mark.parametrize("name", ODD)
def test_a_capture_and_a_journal_may_have_any_name(
    name: str, tmp_path: Path, usual: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    monkeypatch.chdir(captures)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(DATA)
    is_text = name != "\udcff"
    journal = str(Path(os.pardir, name)) if is_text else "../journal"
    ingest([name], journal, SETTINGS)
    assert stored(Path(journal)) == usual
    assert messages(name) == messages(journal) == 600


def test_the_captures_of_a_folder_are_read_together(tmp_path: Path) -> None:
    for name in ("cap-2026-11-21T10:00:00.pcap", "\udcff"):
        (tmp_path / name).write_bytes(DATA)
    assert messages(str(tmp_path)) == 600


@pytest.mark.parametrize("name", ["-", "\udcff"])
def test_a_journal_that_cannot_be_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pcap").write_bytes(DATA)
    with pytest.raises(JournalError):
        ingest(["x.pcap"], name, SETTINGS)


def test_names_in_a_journal_that_are_no_text_are_not_of_it(tmp_path: Path, usual: dict[str, bytes]) -> None:
    (tmp_path / "usual/obs/host=relay02/day=\udcff").mkdir()
    (tmp_path / "usual/obs/\udcff.parquet").touch()
    assert messages(str(tmp_path / "usual")) == 600


def feed(path: Path, data: bytes) -> None:
    """Write to a FIFO, in two parts of which the first is tiny."""

    def write() -> None:
        with open(path, "wb", buffering=0) as fifo:
            fifo.write(data[:1])
            fifo.write(data[1:])

    threading.Thread(target=write, daemon=True).start()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_fifo_is_read_once_and_gives_the_same_rows(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    feed(fifo, pack(DATA))
    done = ingest([str(fifo)], str(tmp_path / "journal"), SETTINGS)
    assert (done.rows, done.tally.packets) == (600, 600)
    feed(fifo, pack(DATA))
    assert messages(str(fifo)) == messages(str(tmp_path / "journal")) == 600


@pytest.mark.parametrize(
    ("name", "blocking"), [("-", True), ("-", False), ("/dev/stdin", True), ("<(cat x.pcap)", True)]
)
def test_the_standard_input_and_a_substitution_are_captures(
    name: str, blocking: bool, tmp_path: Path, usual: dict[str, bytes]
) -> None:
    program = "import sys; from bccnd.cli.main import main; main()"
    command = f"exec '{sys.executable}' -c '{program}' pipeline ingest {name} --host relay02 --out journal"
    reading, writing = os.pipe()
    os.set_blocking(reading, blocking)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(["bash", "-c", command], stdin=reading, cwd=tmp_path, env=environment) as process:
        os.close(reading)
        with open(writing, "wb") as pipe:
            if "cat" not in name:
                pipe.write(DATA)
        assert process.wait(PATIENCE) == 0
    assert stored(tmp_path / "journal") == usual
