"""The data source as a stream: every record once, in whatever order files come, however often it is begun anew."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.pipeline.source.bccn import OBS, BccnSource
from bccnd.pipeline.source.journal_reader import FoundFile
from bccnd.pipeline.source.stream import MAX_GONE, Offsets, StreamReader, cut
from tests.pipeline.journals import T, put, rows
from tests.support import examples

ONE = "20231114T000000Z-00000001"
TWO = "20231114T010000Z-00000002"
THREE = "20231114T020000Z-00000003"
ALL = ReadAllAvailable()
HERE = pafs.LocalFileSystem()


class Follower:
    """What Spark does with a stream reader, by hand: plan, write down, read, and go on from what was written down."""

    def __init__(self, root: Path, **options: str) -> None:
        self.root = root
        self.options = options
        self.at: Offsets = {}
        self.got: list[dict[str, Any]] = []
        self.reader = self.begin()

    def begin(self) -> StreamReader:
        reader = BccnSource({"path": str(self.root), **self.options}).streamReader(OBS)
        assert isinstance(reader, StreamReader)
        self.reader = reader
        return reader

    def plan(self) -> Offsets:
        limit = self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.at, limit)
        return dict(json.loads(json.dumps(end)))

    def read(self, start: Offsets, end: Offsets) -> list[dict[str, Any]]:
        return [
            row
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]

    def step(self) -> list[dict[str, Any]]:
        """One batch; empty when there is nothing new."""
        end = self.plan()
        if end == self.at:
            return []
        records = self.read(self.at, end)
        self.at = end
        self.got += records
        return records

    def run(self) -> None:
        while self.step():
            pass

    def seen(self) -> list[tuple[str, str, int, str]]:
        return [(row["host"], row["journal_id"], row["rec_no"], row["verdict"]) for row in self.got]


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return sorted(row["rec_no"] for row in records)


def age(path: Path, seconds: float) -> None:
    info = path.stat()
    os.utime(path, (info.st_atime, info.st_mtime - seconds))


def test_what_is_there_comes_and_then_what_is_new(tmp_path: Path) -> None:
    put(tmp_path, "a", ONE, 0, rows(0, 10))
    follower = Follower(tmp_path)
    end = follower.plan()
    first = follower.read({}, end)
    put(tmp_path, "a", ONE, 10, rows(10, 5))
    follower.begin()
    assert follower.read({}, end) == first  # a batch can be made again
    follower.at = end
    put(tmp_path, "b", TWO, 0, rows(0, 3))
    assert numbers(first) == list(range(10))
    assert Counter(row["host"] for row in follower.step()) == {"a": 5, "b": 3}
    assert follower.at == {"a": {ONE: 15}, "b": {TWO: 3}}
    assert follower.step() == []
    put(tmp_path, "a", ONE, 10, rows(10, 25))  # a file that is written again, with more
    assert numbers(follower.step()) == list(range(15, 35))


def test_nothing_is_no_journal_to_wait_for_but_a_file_is_none(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "later")
    assert follower.step() == []
    put(tmp_path / "later", "a", ONE, 0, rows(0, 1))
    assert len(follower.step()) == 1
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PipelineError):
        Follower(tmp_path / "file").step()


def test_no_batch_has_more_records_than_was_said_and_every_host_has_its_share(tmp_path: Path) -> None:
    put(tmp_path, "a", ONE, 0, rows(0, 100))
    put(tmp_path, "b", TWO, 0, rows(0, 7))
    follower = Follower(tmp_path, maxRecordsPerBatch="20")
    sizes = []
    while records := follower.step():
        sizes.append(Counter(row["host"] for row in records))
    assert all(size.total() <= 20 for size in sizes)
    assert sizes[0] == {"a": 13, "b": 7}
    assert sizes[1] == {"a": 20}
    assert len(follower.got) == len(set(follower.seen())) == 107


def test_a_late_file_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    put(tmp_path, "a", ONE, 0, rows(0, 10))
    behind = put(tmp_path, "a", ONE, 20, rows(20, 10))
    follower = Follower(tmp_path)
    assert numbers(follower.step()) == list(range(10))
    assert follower.step() == []
    put(tmp_path, "a", ONE, 10, rows(10, 10))
    assert numbers(follower.step()) == list(range(10, 30))
    last = put(tmp_path, "a", ONE, 40, rows(40, 10))
    assert follower.step() == []
    age(last, 601)
    records = follower.step()
    assert [(row["rec_no"], row["verdict"]) for row in records[:1]] == [(30, "journal_gap")]
    assert numbers(records[1:]) == list(range(40, 50))
    assert behind.exists()


def test_what_retention_has_taken_is_one_row(tmp_path: Path) -> None:
    paths = [put(tmp_path, "a", ONE, n * 10, rows(n * 10, 10)) for n in range(5)]
    follower = Follower(tmp_path)
    follower.reader.latestOffset({}, ALL)
    follower.at = {"a": {ONE: 5}}
    for path in paths[:3]:
        path.unlink()
    gap, *rest = follower.step()
    assert gap.pop("ts").timestamp() == T // 10**9 + 30
    gap_values = {"host": "a", "journal_id": ONE, "rec_no": 5, "verdict": "journal_gap"}
    assert {name: value for name, value in gap.items() if value is not None} == gap_values
    assert numbers(rest) == list(range(30, 50))
    assert follower.step() == []


@pytest.mark.parametrize(
    ("first", "expected"),
    [(30, [(1, "journal_gap"), (30, "accepted"), (31, "accepted")]), (1, [(1, "accepted"), (2, "accepted")])],
    ids=["taken before anybody looked", "counted from 1"],
)
def test_a_journal_that_does_not_begin_with_0(tmp_path: Path, first: int, expected: list[tuple[int, str]]) -> None:
    put(tmp_path, "a", ONE, first, rows(first, 2))
    follower = Follower(tmp_path, maxRecordsPerBatch="1")
    follower.run()
    assert [(row["rec_no"], row["verdict"]) for row in follower.got] == expected
    assert follower.at == {"a": {ONE: first + 2}}


def test_what_is_taken_between_plan_and_reading_is_a_gap(tmp_path: Path) -> None:
    paths = [put(tmp_path, "a", ONE, n * 10, rows(n * 10, 10)) for n in range(3)]
    follower = Follower(tmp_path)
    end = follower.plan()
    paths[0].unlink()
    assert [row["rec_no"] for row in follower.read({}, end)] == [1, *range(10, 30)]
    for path in paths[1:]:
        path.unlink()
    (gap,) = follower.read({}, end)
    assert (gap["rec_no"], gap["verdict"]) == (1, "journal_gap")
    assert gap["ts"] is not None


def test_a_journal_that_is_gone_is_not_read_twice_and_hides_no_other(tmp_path: Path) -> None:
    old = put(tmp_path, "a", TWO, 0, rows(0, 10))
    kept = tmp_path / "kept"
    shutil.copy(old, kept)
    follower = Follower(tmp_path)
    follower.run()
    old.unlink()
    put(tmp_path, "a", THREE, 0, rows(0, 10))
    assert len(follower.step()) == 10
    shutil.copy(kept, old)
    assert follower.step() == []
    old.unlink()
    # A clock that is set back gives the next journal a name that sorts before the one that is gone.
    put(tmp_path, "a", ONE, 0, rows(0, 5))
    assert [row["journal_id"] for row in follower.step()] == [ONE] * 5
    # It was gone for a while only: retention had taken all that there was of it.
    put(tmp_path, "a", TWO, 10, rows(10, 3))
    assert numbers(follower.step()) == [10, 11, 12]
    assert follower.at == {"a": {ONE: 5, TWO: 13, THREE: 10}}


def test_the_journals_that_went_first_are_the_first_to_be_forgotten(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    names = [f"{'Z' if n % 2 else 'A'}-{n:08x}" for n in range(MAX_GONE + 1)]
    follower.at = {"a": dict.fromkeys(names, 1)}
    put(tmp_path, "a", ONE, 0, rows(0, 1))
    follower.run()
    assert list(follower.at["a"]) == [*names[1:], ONE]


def test_what_is_available_now_is_what_was_there_when_it_was_asked(tmp_path: Path) -> None:
    put(tmp_path, "a", ONE, 0, rows(0, 10))
    follower = Follower(tmp_path, maxRecordsPerBatch="4")
    follower.reader.prepareForTriggerAvailableNow()
    put(tmp_path, "a", ONE, 10, rows(10, 10))
    put(tmp_path, "b", TWO, 0, rows(0, 10))
    follower.run()
    assert numbers(follower.got) == list(range(10))
    follower.begin()
    follower.reader.prepareForTriggerAvailableNow()
    follower.run()
    assert Counter(row["host"] for row in follower.got) == {"a": 20, "b": 10}
    assert len(set(follower.seen())) == 30


@settings(max_examples=examples(25))
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.sampled_from(["", "1", "3", "10"]),
)
def test_every_record_comes_once_in_whatever_order_files_come(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], chance: Any, most: str
) -> None:
    root = tmp_path_factory.mktemp("stream")
    pieces = []
    for host, journal in (("a", ONE), ("a", TWO), ("b", THREE)):
        first = 1
        for size in sizes:
            pieces.append((host, journal, first, size))
            first += size
    chance.shuffle(pieces)
    follower = Follower(root, **({"maxRecordsPerBatch": most} if most else {}))
    for host, journal, first, size in pieces:
        put(root, host, journal, first, rows(first, size))
        if first > 1 and not list(root.glob(f"obs/host={host}/*/{journal}-{1:012d}.parquet")):
            continue  # what is before the first file there would be taken for what retention has taken
        for _ in range(chance.randrange(3)):
            follower.step()
        if chance.random() < 0.5:
            follower.begin()
    follower.run()
    wanted = Counter(
        (host, journal, first + n, "accepted") for host, journal, first, size in pieces for n in range(size)
    )
    got = Counter(key for key in follower.seen() if key[3] != "journal_gap")
    # a journal of which the beginning came last was given up before it came
    early = {key[:2] for key in follower.seen() if key[3] == "journal_gap"}
    assert {key: n for key, n in got.items() if key[:2] not in early} == {
        key: n for key, n in wanted.items() if key[:2] not in early
    }
    assert max(got.values()) == 1


def test_what_was_read_is_skipped_and_nothing_overlaps() -> None:
    sizes = {0: 10, 5: 10, 12: 3, 15: 5}
    ends = [*list(sizes)[1:], None]
    files = [
        FoundFile(file_names.ObsFile("a", "2023-11-14", ONE, first), end, 1, 0.0)
        for first, end in zip(sizes, ends, strict=True)
    ]
    planned = list(cut(files, 3, lambda file: sizes[file.name.first], lambda _: False))
    assert [(piece.first, piece.end, piece.gap) for piece in planned] == [
        (3, 10, False),
        (10, 15, False),
        (15, 20, False),
    ]
    (gap, *_) = cut(files[1:], 3, lambda file: sizes[file.name.first], lambda _: False)
    assert (gap.first, gap.end, gap.gap) == (3, 5, True)


def query(spark: SparkSession, root: Path, folder: Path, **options: str) -> None:
    frame = spark.readStream.format("bccn").options(**options).load(str(root / "journal"))
    stream = (
        frame.select("host", "journal_id", "rec_no", "verdict")
        .writeStream.format("json")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(100)
    assert stream.exception() is None


def test_spark_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    for n in range(3):
        put(root, "a", ONE, n * 10, rows(n * 10, 10))
    query(spark, tmp_path, tmp_path, maxRecordsPerBatch="25")
    taken = put(root, "a", ONE, 30, rows(30, 10))
    put(root, "a", ONE, 40, rows(40, 10))
    put(root, "b", TWO, 0, rows(0, 5))
    for path in sorted((root / "obs/host=a/day=2023-11-14").iterdir())[:3]:
        path.unlink()
    taken.unlink()
    query(spark, tmp_path, tmp_path)
    written = [
        tuple(row) for row in spark.read.json(str(tmp_path / "out")).select("host", "rec_no", "verdict").collect()
    ]
    assert sorted(written) == [
        *(("a", number, "accepted") for number in range(30)),
        ("a", 30, "journal_gap"),
        *(("a", number, "accepted") for number in range(40, 50)),
        *(("b", number, "accepted") for number in range(5)),
    ]
    last = sorted((tmp_path / "checkpoint/offsets").iterdir(), key=lambda path: path.name)[-1]
    assert json.loads(last.read_text().splitlines()[-1]) == {"a": {ONE: 50}, "b": {TWO: 5}}
