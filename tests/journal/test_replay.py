"""What is taken out of a journal to be said again: what was accepted and is known to the last byte, in its order."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bccnd.core.formats.tap_record import Observation, observe
from bccnd.errors import JournalError
from bccnd.journal.capture_import import CaptureSettings
from bccnd.journal.file_names import HASHED
from bccnd.journal.replay import Choice, Clock, Counts, RecordedMessage, read_messages
from tests.core.captures import pcap
from tests.e2e.harness import KEY, datagram
from tests.pipeline.journals import T, frame, put, row, rows
from tests.refusals import refused

ONE = "20231114T000000Z-00000001"
TWO = "20231114T010000Z-00000002"
MICRO = T // 1000


def play(root: Path, counts: Counts | None = None, host: str = "", **choice: object) -> list[RecordedMessage]:
    chosen = Choice(**choice)  # type: ignore[arg-type]
    return list(read_messages(str(root), chosen, counts or Counts(), CaptureSettings(host)))


def test_messages_come_as_they_were_heard(tmp_path: Path) -> None:
    put(tmp_path, "a", TWO, 0, rows(20, 5))
    put(tmp_path, "a", ONE, 10, rows(10, 10))
    put(tmp_path, "a", ONE, 0, rows(0, 10))
    messages = play(tmp_path)
    assert [message.seq for message in messages] == list(range(25))
    assert messages[3] == RecordedMessage(MICRO + 3_000_000, "relay01/a/1", 3, "a/b", b"payload 3")


KINDS = ["accepted", "duplicate", "restart", "looped", "reordered", "bad_channel", "not_addressed"]
NAMED = ["a/b", "a/c", "b", "!", "!relay01", "bccn/report/relay01"]
BY_KIND = [row(number, verdict=kind) for number, kind in enumerate(KINDS)]
BY_CHANNEL = [row(number, chan=chan) for number, chan in enumerate(NAMED)]
#: records, what is chosen, the numbers of the messages that come, and what is counted beside them
CHOICES: list[tuple[list[Observation], dict[str, Any], list[int], dict[str, int]]] = [
    (BY_KIND, {}, [0, 2, 4], {"not_accepted": 4}),
    (BY_KIND, {"own": True}, [0, 2, 3, 4], {"not_accepted": 3}),
    (BY_CHANNEL, {}, [0, 1, 2, 3, 4], {"reports": 1}),
    (BY_CHANNEL, {"channels": ("a/",)}, [0, 1], {"reports": 1}),
    (BY_CHANNEL, {"channels": ("a/c", "b")}, [1, 2], {"reports": 1}),
    (BY_CHANNEL, {"channels": ("!",)}, [3], {"reports": 1}),
    (BY_CHANNEL, {"channels": (">",)}, [0, 1, 2], {"reports": 1}),
]


@pytest.mark.parametrize(("records", "choice", "seqs", "counted"), CHOICES)
def test_what_is_chosen_comes_and_the_rest_is_counted(
    tmp_path: Path, records: list[Observation], choice: dict[str, Any], seqs: list[int], counted: dict[str, int]
) -> None:
    put(tmp_path, "a", ONE, 0, records)
    counts = Counts()
    assert [message.seq for message in play(tmp_path, counts, **choice)] == seqs
    assert counts == Counts(replayed=len(seqs), **counted)


def test_a_time_can_be_chosen(tmp_path: Path) -> None:
    put(tmp_path, "a", ONE, 0, rows(0, 10))
    put(tmp_path, "a", TWO, 0, rows(86_400, 10))
    assert [message.seq for message in play(tmp_path, since=MICRO + 5_000_000, until=MICRO + 8_000_000)] == [5, 6, 7]
    assert [message.seq for message in play(tmp_path, since=MICRO + 86_405_000_000)] == list(range(86_405, 86_410))


def test_a_foreign_file_is_played_and_a_damaged_one_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "a", ONE, 0, rows(0, 9))
    records = pq.read_table(path, partitioning=None).sort_by([("ts", "descending")])
    kept = [name for name in reversed(records.column_names) if name not in ("share", "epoch")]
    pq.write_table(records.select(kept).append_column("more", pa.nulls(9)), path)
    assert [message.seq for message in play(tmp_path)] == list(range(9))
    path.write_bytes(put(tmp_path, "a", ONE, 0, rows(0, 9)).read_bytes()[:-1])
    with refused("bad_file", kind=JournalError):
        play(tmp_path)


def test_of_several_hosts_one_has_to_be_chosen(tmp_path: Path) -> None:
    put(tmp_path, "a", ONE, 0, rows(0, 3))
    put(tmp_path, "b", TWO, 0, rows(0, 4))
    with refused("several_hosts", kind=JournalError):
        play(tmp_path)
    assert len(play(tmp_path, host="b")) == 4
    with refused("no_journal", kind=JournalError):
        play(tmp_path, host="c")


def hashed(row: Observation) -> Observation:
    assert row.payload is not None
    return row._replace(payload=HASHED + hashlib.sha256(row.payload).digest())


def test_payloads_that_were_not_recorded_are_counted(tmp_path: Path) -> None:
    like_one = HASHED + bytes(32)

    def heard(seq: int, payload: bytes, key: bytes | None = None) -> Observation:
        raw = datagram("relay01/a/1", seq, "a/b", payload, key)
        return observe("accepted", "lan", 1, T + seq, "10.0.0.1:1", raw)

    observed = [
        *(row(0)._replace(payload=None), hashed(row(1)), row(2)),
        # what only looks like a hash, and was sent
        *(heard(3, like_one), heard(4, like_one, KEY), hashed(heard(5, b"x", KEY))),
    ]
    put(tmp_path, "a", ONE, 0, observed)
    counts = Counts()
    assert [message.payload for message in play(tmp_path, counts)] == [b"payload 2", like_one, like_one]
    assert counts == Counts(replayed=3, unrecorded=3)


def test_a_capture_is_played_as_a_daemon_would_have_accepted_it(tmp_path: Path) -> None:
    seqs = [1, 2, 2, 3]
    frames = [frame(at, datagram("relay01/a/1", seq, "a/b", f"{seq}")) for at, seq in enumerate(seqs)]
    (tmp_path / "x.pcap").write_bytes(pcap(frames))
    counts = Counts()
    assert [message.payload for message in play(tmp_path / "x.pcap", counts)] == [b"1", b"2", b"3"]
    assert counts.not_accepted == 1
    assert [message.seq for message in play(tmp_path / "x.pcap", since=MICRO + 1_000_000)] == [2, 3]


def test_what_is_neither_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("some text")
    for name, reason in (("nothing", "no_journal"), ("empty", "no_journal"), ("text", "bad_capture")):
        with refused(reason, kind=JournalError):
            play(tmp_path / name)


def test_messages_are_as_far_apart_as_they_were() -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    for speed, wanted in ((1.0, [2.0, 1.0]), (10.0, [0.2, 0.1]), (0.0, [])):
        slept.clear()
        clock = Clock(speed, lambda: now[0], sleep)
        for ts in (50, 2_000_050, 1_000_000, 2_000_050, 3_000_050):
            clock.wait(ts)
        assert slept == wanted
