"""A log becomes files: all its rows, once, whatever became of its end, and however often it is done."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bccnd.core.formats.tap_record import seq_key
from bccnd.core.wire import frames
from bccnd.errors import JournalError
from bccnd.journal import file_names, schema
from bccnd.journal.sessions import RecorderSession
from bccnd.recorder.logfile import ROWS, LogWriter
from bccnd.recorder.rows import observations, pack
from bccnd.recorder.sessions import Head
from tests.recorder.material import JOURNAL, NOON, convert_log, names, packet, table, write_log

MIDNIGHT = NOON + 43_200 * file_names.MICROSECONDS


def moment(ts: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ts / 1e6, datetime.UTC)


def test_a_log_becomes_a_file_with_its_rows_and_the_session(tmp_path: Path) -> None:
    log, journal = tmp_path / "a.log", tmp_path / "journal"
    write_log(log, [packet([1, 2], NOON), frames.gap(5), packet([3], NOON + 9)], first=41, alive=[NOON + 50, NOON + 99])
    converted = convert_log(log, journal)
    assert (converted.rows, converted.files, converted.end) == (3, 1, "clean")
    obs = f"obs/host=relay01/day=2026-11-21/{JOURNAL}-000000000041.parquet"
    assert names(journal) == [obs, f"sessions/host=relay01/{JOURNAL}.parquet"]
    rows = table(journal)
    assert [(row["rec_no"], row["seq_key"]) for row in rows] == [(41, seq_key(1)), (42, seq_key(2)), (43, seq_key(3))]
    assert {(row["host"], row["journal_id"]) for row in rows} == {("relay01", JOURNAL)}
    assert (rows[0]["ts"], rows[0]["payload"]) == (moment(NOON), b"hello")
    (session,) = table(journal, "sessions")
    assert (session["start_ts"], session["end_ts"]) == (moment(NOON), moment(NOON + 99))
    assert (session["tap_gaps"], session["socket_drops"]) == (5, 0)
    assert (session["first_rec_no"], session["last_rec_no"]) == (1, 43)
    assert pq.read_schema(journal / obs).equals(schema.OBS)
    assert converted.bytes == (journal / obs).stat().st_size


def test_it_may_be_done_again_and_yields_the_same(tmp_path: Path) -> None:
    log, journal = tmp_path / "a.log", tmp_path / "journal"
    write_log(log, [packet(range(100), NOON)], alive=[NOON + 7])
    convert_log(log, journal)
    before, rows, sessions = names(journal), table(journal), table(journal, "sessions")
    (journal / before[0]).unlink()
    (journal / before[0]).with_name("." + Path(before[0]).name).write_bytes(b"what a crash has left")
    convert_log(log, journal)
    assert (names(journal), table(journal), table(journal, "sessions")) == (before, rows, sessions)


def test_every_file_holds_one_day_and_numbers_without_a_hole(tmp_path: Path) -> None:
    """Around midnight, with stamps of two segments that overtake each other."""
    log, journal = tmp_path / "a.log", tmp_path / "journal"
    stamps = [MIDNIGHT - 2, MIDNIGHT - 1, MIDNIGHT, MIDNIGHT - 1, MIDNIGHT + 1, MIDNIGHT + 2]
    write_log(log, [packet([number], ts) for number, ts in enumerate(stamps)])
    converted = convert_log(log, journal)
    assert converted.files == 4
    seen = []
    for name in names(journal):
        output = file_names.read_path(name)
        if output is not None:
            rows = pq.read_table(journal / name, partitioning=None).to_pylist()
            assert {f"{row['ts']:%Y-%m-%d}" for row in rows} == {output.day}
            assert [row["rec_no"] for row in rows] == list(range(output.first, output.first + len(rows)))
            seen += [row["rec_no"] for row in rows]
    assert sorted(seen) == [1, 2, 3, 4, 5, 6]
    assert [row["ts"] for row in table(journal)] == [moment(ts) for ts in stamps]


@pytest.mark.parametrize("host", ["../../etc", ""])
def test_a_log_of_a_host_that_is_no_folder_is_refused(tmp_path: Path, host: str) -> None:
    log, journal = tmp_path / "a.log", tmp_path / "journal"
    write_log(log, [packet([1], NOON)], host=host)
    with pytest.raises(JournalError):
        convert_log(log, journal)
    assert not journal.exists()


def test_rows_that_were_written_as_rows(tmp_path: Path) -> None:
    log, journal = tmp_path / "a.log", tmp_path / "journal"
    writer = LogWriter(str(log))
    writer.append(b"H", Head("relay01", JOURNAL, 1, "1", [RecorderSession(NOON, NOON)]).pack())
    writer.append(ROWS, pack(observations(packet([1, 2], NOON))))
    writer.append(ROWS, b"none")
    writer.close()
    converted = convert_log(log, journal)
    assert (converted.rows, converted.end) == (2, "damaged")
    assert [row["payload"] for row in table(journal)] == [b"hello", b"hello"]


def test_an_earlier_log_does_not_shorten_a_session(tmp_path: Path) -> None:
    """An earlier log whose removal did not happen tells of an earlier end."""
    early, late, journal = tmp_path / "1.log", tmp_path / "2.log", tmp_path / "journal"
    write_log(early, [packet([1], NOON)], alive=[NOON + 10])
    write_log(late, [packet([2], NOON)], first=2, alive=[NOON + 20])
    for log in (early, late, early):
        convert_log(log, journal)
    (session,) = table(journal, "sessions")
    assert session["end_ts"] == moment(NOON + 20)
    assert [row["rec_no"] for row in table(journal)] == [1, 2]
