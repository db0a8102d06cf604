"""`bccn pipeline ingest`: one line when it is done, one with a remedy when it cannot be, and the journal as it was."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bccnd.cli.journals.pipeline_ingest import ingest
from tests.core.captures import Frame, pcap
from tests.e2e.harness import KEY, datagram
from tests.pipeline.journals import frame
from tests.support import open_to_others


def message_bytes(seq: int, key: bytes | None = None) -> bytes:
    return datagram("relay01/a/1", seq, "a/b", "x", key)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "x.pcap"
    cut = frame(9, message_bytes(9))
    frames = [
        frame(1, message_bytes(1)),
        frame(2, message_bytes(1)),
        frame(3, message_bytes(2, KEY)),
        Frame(cut.stamp, cut.data[:-3], cut.wire),
    ]
    path.write_bytes(pcap(frames) + b"\0" * 7)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(ingest, arguments)


def test_a_line_says_what_was_made_and_what_was_left_out(tmp_path: Path, capture: Path) -> None:
    done = run(str(capture), "--host", "relay02", "--out", str(tmp_path / "j"))
    assert (done.exit_code, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("3 datagrams in 1 files of journal 20231114T221321.")
    for part in ("2 accepted, 1 duplicate", "1 cut off", "1 captures that end in the middle of a packet"):
        assert part in line
    assert not open_to_others(tmp_path / "j")


def test_options_say_how_it_is_judged(tmp_path: Path, capture: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    given = ["--key", str(key), "--required", "--segment", "lan", "--no-payload", "--late", "deliver"]
    assert run(str(capture), "--host", "relay02", "--out", str(tmp_path / "j"), *given).exit_code == 0
    (path,) = (tmp_path / "j/obs").rglob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    assert [row["verdict"] for row in rows] == ["integrity_missing", "integrity_missing", "accepted"]
    assert {(row["segment"], row["payload"]) for row in rows} == {("lan", None)}


@pytest.mark.parametrize(
    ("given", "code", "output"),
    [
        ([], 2, "'--host'"),
        (["--host", "a/b"], 2, "--host a/b"),
        (["--host", "a", "--algorithm", "hmac"], 2, "hmac"),
        (["--host", "a", "--key", "/nowhere"], 2, "cannot read key"),
        (["--host", "a", "--signer", "a b=/x"], 2, "src"),
        (["--host", "a", "--port", "0"], 2, "--port"),
        (["--host", "a", "--port", "5401"], 1, "5401 among 4 packets"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    tmp_path: Path, capture: Path, given: list[str], code: int, output: str
) -> None:
    done = run(str(capture), "--out", str(tmp_path / "j"), *given)
    assert (done.exit_code, output in done.stderr, done.stdout) == (code, True, "")
    if code == 1:
        assert (len(done.stderr.splitlines()), "remedy: " in done.stderr) == (2, True)
    assert not list((tmp_path / "j").rglob("*.parquet"))
