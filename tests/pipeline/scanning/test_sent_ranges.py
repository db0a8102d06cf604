"""Recorded reports -> what was sent: which datagrams say something, and what is read of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bccnd.core.formats.tap_record import Observation, observe, seq_key
from bccnd.pipeline.inputs.journal_files import Journal
from bccnd.pipeline.records import task_records
from bccnd.pipeline.records.source_runs import SentRange
from bccnd.pipeline.scanning import journal_scan
from bccnd.pipeline.scanning.sent_ranges import merge_ranges, read_runs
from tests.e2e.harness import datagram
from tests.pipeline.journals import T, put

HEAD = "report 1 2.0 10000 1 1\n"
CHAN = "bccn/report/h1"
SRC = "h1/bccnd/7"


def sent(payload: str, src: str = SRC, chan: str = CHAN) -> list[tuple[Any, ...]]:
    return [tuple(run) for run in read_runs(src, chan, payload.encode())]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (HEAD + "sent h1/p/1 5 9\nsent h1/q/2 7 8\n", [("h1/p/1", 5, 9), ("h1/q/2", 7, 8)]),
        (HEAD + "keys hmac ab12\nsent h1/p/1 5 9 more\nnews\nheard h2 1 2 3 4 5\n", [("h1/p/1", 5, 9)]),
        # nothing was sent
        (HEAD + "sent h1/p/1 5 5\n", []),
        # one line that cannot be, and all of it says nothing
        (HEAD + "sent h1/p/1 5 9\nsent h1/q/2 7 6\n", []),
        (HEAD + "sent h1/p/1 5 9\nsent h2/p/1 1 3\n", []),
        (HEAD + "sent h1/p/1 5 9\nsent h1/q/2 x 6\n", []),
        (HEAD + f"sent h1/p/1 5 {2**64}\n", []),
        ("sent h1/p/1 5 9\n", []),
        ("report 2 2.0 10000 1 1\nsent h1/p/1 5 9\n", []),
        ("\x00\n" + "sent h1/p/1 5 9\n", []),
        ("", []),
    ],
)
def test_what_a_datagram_says(payload: str, expected: list[tuple[Any, ...]]) -> None:
    assert sent(payload) == expected


def test_only_the_daemon_of_a_host_speaks_for_it() -> None:
    payload = HEAD + "sent h1/p/1 5 9\n"
    assert sent(payload)
    assert not sent(payload, src="h2/bccnd/7")
    assert not sent(payload, src="h1/p/1")
    assert not sent(payload, chan="bccn/report/h2")
    assert not read_runs(SRC, CHAN, payload.encode() + b"\xff")


def row(number: int, text: str = "", **more: Any) -> Observation:
    """A row of a report, or of another message if it says nothing."""
    stamp = T + number * 10**9
    body = datagram(SRC, number, CHAN if text else "data", HEAD + text)
    return observe("accepted", "lan", 1, stamp, "10.0.0.1:5400", body)._replace(**more)


#: a source, its first and last number, and when that was reported, in seconds after T
Range = tuple[str, int, int, int]


def ranges(
    root: Path, spans: journal_scan.Spans | None = None, corrections: dict[tuple[str, str], int] | None = None
) -> list[Range]:
    plan = journal_scan.Plan(str(root), spans, corrections or {}, 1, 16, {})
    table = pa.Table.from_batches(list(journal_scan.read(Journal(str(root)).files, plan)), task_records.RECORD)
    records = task_records.fields_of(table, "sent").to_pylist()
    return sorted(
        (record["src"], record["lo_key"], record["hi_key"], record["from_ts"] // 10**6 - T // 10**9)
        for record in records
    )


ROWS = [
    row(1),
    row(2, "sent h1/p/1 5 9\n"),
    row(3, "sent h1/p/1 5 12\n"),
    row(4, "sent h1/p/1 5 12\nsent h1/q/1 3 4\n"),
    row(5, "sent h1/p/1 5 90\n", verdict="looped"),
    row(6, "sent h1/p/1 5 91\n", verdict="integrity_failed"),
    row(7, "sent h1/p/1 5 92\n", payload=None),
    row(8, f"sent h1/p/1 5 {2**40}\n"),
]
FOUND = [
    ("h1/p/1", seq_key(5), seq_key(11), 3),
    ("h1/p/1", seq_key(5), seq_key(2**40 - 1), 8),
    ("h1/q/1", seq_key(3), seq_key(3), 4),
]


def test_of_a_file_the_highest_numbers_are_kept_and_when_they_came(tmp_path: Path) -> None:
    put(tmp_path, "h2", "j1", 1, ROWS)
    assert ranges(tmp_path) == FOUND
    second = 10**6
    assert ranges(tmp_path, [(T // 1000 + 3 * second, T // 1000 + 4 * second)]) == FOUND[:1]
    assert ranges(tmp_path, None, {("2023-11-14", "h2"): -60 * second}) == [
        (*found[:3], found[3] + 60) for found in FOUND
    ]


def test_however_rows_are_cut_into_files_the_ranges_are_the_same(tmp_path: Path) -> None:
    merged = []
    for cut in range(1, len(ROWS)):
        root = tmp_path / str(cut)
        put(root, "h2", "j1", 1, ROWS[:cut])
        put(root, "h2", "j1", 1 + cut, ROWS[cut:])
        of_sources = [(src, SentRange("d", first, last, at, at)) for src, first, last, at in ranges(root)]
        merged.append(
            [
                (src, united.first, united.last, united.ts)
                for src in ("h1/p/1", "h1/q/1")
                for united in merge_ranges(sent_range for of, sent_range in of_sources if of == src)
            ]
        )
    assert merged == [FOUND] * len(merged)


def test_a_file_without_payloads_says_nothing(tmp_path: Path) -> None:
    path = put(tmp_path, "h2", "j1", 1, ROWS)
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["payload"]), path)
    assert ranges(tmp_path) == []


def test_receivers_that_got_the_same_report_count_once() -> None:
    """The first reception counts, on the common clock as by their own."""
    higher, sooner = SentRange("d", 5, 11, 300, 200), SentRange("d", 5, 11, 250, 260)
    lower, other_run = SentRange("d", 5, 10, 100, 100), SentRange("d", 6, 11, 400, 400)
    expected = [SentRange("d", 5, 11, 250, 200), other_run]
    assert merge_ranges([higher, lower, sooner, other_run]) == expected
    assert merge_ranges([other_run, sooner, lower, higher]) == expected
