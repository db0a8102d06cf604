"""Merged files: at every moment, wherever a process is killed, each record is there exactly once."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.config.recorder_schema import KeepSettings
from bccnd.journal import file_names, files
from bccnd.journal.listing import current, list_files
from bccnd.recorder import merge
from bccnd.recorder.convert import convert
from bccnd.recorder.maintenance import Maintenance
from bccnd.recorder.retention import retain
from bccnd.recorder.rows import observations
from bccnd.recorder.spool import Spool
from tests.pipeline import object_store
from tests.recorder.material import JOURNAL, NOON, end, packet, wait_for_child, write_log
from tests.support import examples

HERE = pafs.LocalFileSystem()
DAYS = ("", "2026-11-23")
DAY = 86_400
LATER = "20261121T180000Z-00000002"
Record = tuple[str, str, int]


class Killed(BaseException):
    """What stands for kill -9."""


class Disk(pafs.LocalFileSystem):  # type: ignore[misc]
    """A disk that is looked at before each change, and that dies with its user before the change ``fatal``."""

    def __init__(self, root: Path, expected: list[Record], fatal: int) -> None:
        super().__init__()
        self.root, self.expected, self.fatal = root, expected, fatal
        self.changes = 0

    def _change(self) -> None:
        assert view(self.root) == self.expected
        self.changes += 1
        if self.changes >= self.fatal:
            raise Killed

    def open_output_stream(self, path: str, *args: Any, **options: Any) -> Any:
        self._change()
        return super().open_output_stream(path, *args, **options)

    def move(self, src: str, dest: str) -> None:
        self._change()
        super().move(src, dest)

    def delete_file(self, path: str) -> None:
        self._change()
        super().delete_file(path)


def put(root: Path, day: int, journal: str, first: int, count: int) -> None:
    """A file of so many records, so many days after the first."""
    rows = observations(packet(range(count), NOON + day * DAY * file_names.MICROSECONDS))
    name = file_names.ObsFile("relay01", file_names.day_of(rows[0].ts), journal, first)
    files.write(HERE, str(root), name.path, files.obs_table("relay01", journal, first, rows))


def view(root: Path) -> list[Record]:
    """The records in the files that readers take."""
    found = []
    for one in current(list_files(HERE, str(root))):
        numbers = pq.read_table(root / one.file.path, columns=["rec_no"], partitioning=None).column(0).to_pylist()
        found += [(one.file.day, one.file.journal_id, number) for number in numbers]
    return sorted(found)


def merge_all(filesystem: pafs.FileSystem, root: Path, later: float = 0.0) -> list[merge.Step]:
    """One pass, which begins so many seconds after now; its steps."""
    day = DAYS[0]
    steps: list[merge.Step] = []
    while not steps or day:
        now = datetime.datetime.now().timestamp() + later
        skip = [one.damaged for one in steps]
        step = merge.merge_step(filesystem, str(root), "relay01", (day, DAYS[1]), now, skip)
        steps.append(step)
        day = step.day
    return steps


def names(root: Path) -> list[str]:
    return sorted(path.name.removesuffix(".parquet") for path in root.rglob("*.parquet"))


@contextlib.contextmanager
def locked(path: Path, flags: int) -> Iterator[None]:
    descriptor = os.open(path, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


#: files: the day, the journal, their records, and the records of a log behind it that was lost
FILES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([JOURNAL, JOURNAL, LATER]),
        st.integers(1, 5),
        st.sampled_from([0, 0, 2]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(120))
@given(FILES, st.integers(4, 12), st.lists(st.integers(1, 9), max_size=4))
def test_every_record_is_there_once_whenever_who_merges_is_killed(
    tmp_path_factory: pytest.TempPathFactory, cut: list[tuple[int, str, int, int]], most: int, kills: list[int]
) -> None:
    root = tmp_path_factory.mktemp("journal")
    following = {JOURNAL: 1, LATER: 1}
    for day, journal, count, lost in sorted(cut):
        put(root, day, journal, following[journal], count)
        following[journal] += count + lost
    expected = view(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "MAX_RECORDS", most)
        patch.setattr(merge, "_CHUNK", 2)
        for fatal in [*kills, 10**6]:
            for later in (0.0, 2 * merge.GRACE):
                disk = Disk(root, expected, fatal)
                try:
                    merge_all(disk, root, later)
                except Killed:
                    break
        assert view(root) == expected
        assert {one.name for one in root.rglob(".*")} <= {".merging"}
        # What could be merged has been, and nothing else is left.
        assert [(one.merged, one.removed, one.waiting) for one in merge_all(HERE, root)] == [(0, 0, 0)]
    left = list_files(HERE, str(root))
    assert left == current(left)
    assert all((one.file.last is None) == (one.file.day >= DAYS[1]) or one.file.last != one.file.first for one in left)
    for one, other in pairwise(left):
        if one.file[:3] == other.file[:3] and one.file.day < DAYS[1]:
            counts = [pq.read_metadata(root / each.file.path).num_rows for each in (one, other)]
            assert other.file.first > one.file.first + counts[0] or sum(counts) > most


def test_a_day_becomes_one_file_and_what_it_was_made_of_stays_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_GROUP", 8)
    for number in range(5):
        put(tmp_path, 0, JOURNAL, 1 + 3 * number, 3)
    put(tmp_path, 1, JOURNAL, 16, 3)
    first, last = merge_all(HERE, tmp_path)
    merged = f"{JOURNAL}-000000000001_000000000015"
    assert (first.merged, first.records, first.file) == (5, 15, f"obs/host=relay01/day=2026-11-21/{merged}.parquet")
    assert (last.removed, last.waiting) == (0, 5)
    assert len(names(tmp_path)) == 7
    assert merge_all(HERE, tmp_path, merge.GRACE + 60)[0].removed == 5
    assert names(tmp_path) == [merged, f"{JOURNAL}-000000000016"]
    assert pq.read_metadata(tmp_path / first.file).num_row_groups == 2
    # A log whose conversion is done again, and a day that goes on.
    put(tmp_path, 0, JOURNAL, 4, 3)
    put(tmp_path, 0, JOURNAL, 16, 1)
    (tmp_path / "obs/host=relay01/day=2026-11-22").rename(tmp_path / "gone")
    assert merge_all(HERE, tmp_path, merge.GRACE + 60)[0].removed == 1
    merge_all(HERE, tmp_path, merge.GRACE + 60)
    assert names(tmp_path / "obs") == [f"{JOURNAL}-000000000001_000000000016"]


def test_of_two_processes_one_merges_and_a_reader_holds_up_neither(tmp_path: Path) -> None:
    for number in range(2):
        put(tmp_path, 0, JOURNAL, 1 + 3 * number, 3)
    folder = tmp_path / "obs/host=relay01"
    # Any user who may read the journal can lock the folder itself.
    with locked(folder, os.O_RDONLY):
        assert merge_all(HERE, tmp_path)[0].merged == 2
    (lock,) = (one for one in folder.iterdir() if one.is_file())
    assert lock.stat().st_mode & 0o077 == 0
    put(tmp_path, 0, JOURNAL, 7, 3)
    with locked(lock, os.O_RDWR):
        assert [step.merged for step in merge_all(HERE, tmp_path)] == [0]
    assert merge_all(HERE, tmp_path)[0].merged == 2


def test_a_damaged_file_is_left_alone_and_hides_nothing(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path, 0, JOURNAL, 1 + 3 * number, 3)
    paths = sorted(tmp_path.rglob("*.parquet"))
    paths[1].write_bytes(b"PAR1 and nothing that could be read")
    data = bytearray(paths[4].read_bytes())
    data[4:60] = bytes(56)
    paths[4].write_bytes(data)
    damaged, step, _ = merge_all(HERE, tmp_path)
    assert (damaged.merged, damaged.damaged) == (0, str(paths[4].relative_to(tmp_path)))
    assert (step.merged, step.records) == (2, 6)
    assert f"{JOURNAL}-000000000007_000000000012" in names(tmp_path)
    # What a merged file was made of stays if that file cannot be read.
    (tmp_path / step.file).write_bytes(b"gone")
    assert merge_all(HERE, tmp_path, 2 * merge.GRACE)[0].removed == 0
    assert len(names(tmp_path)) == 6


def test_retention_takes_a_merged_day_as_a_whole(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path, number, JOURNAL, 1 + 4 * number, 2)
        put(tmp_path, number, JOURNAL, 3 + 4 * number, 2)
    merge_all(HERE, tmp_path)
    midnight = NOON // file_names.MICROSECONDS + DAY // 2
    for path in tmp_path.rglob("*_*.parquet"):
        os.utime(path, (midnight + 2 * DAY, midnight + 2 * DAY))  # merged at a late start
    sizes = {path.name: path.stat().st_size for path in tmp_path.rglob("*.parquet")}
    whole = sum(
        size for name, size in sizes.items() if "_" in name or "-000000000009" in name or "-000000000011" in name
    )
    assert retain(HERE, str(tmp_path), "relay01", KeepSettings(size=whole), 0.0) == (0, 0)
    assert retain(HERE, str(tmp_path), "relay01", KeepSettings(age=DAY), midnight + DAY - 1.0) == (0, 0)
    count, size = retain(HERE, str(tmp_path), "relay01", KeepSettings(age=DAY), midnight + DAY + 1.0)
    assert (count, size) == (1, sizes[f"{JOURNAL}-000000000001_000000000004.parquet"])
    assert len(view(tmp_path)) == 8
    assert not (tmp_path / "obs/host=relay01/day=2026-11-21").exists()


@pytest.mark.slow
def test_a_journal_on_s3(tmp_path: Path) -> None:
    """Written, merged and removed on a real server, where a rename is a copy."""
    with object_store.serve(tmp_path / "log") as server:
        store, root = files.open_root(object_store.place(server, "journal"))
        for number in range(5):
            write_log(tmp_path / f"{number}.log", [packet(range(3), NOON)], first=1 + 3 * number, alive=[NOON + number])
            convert(str(tmp_path / f"{number}.log"), store, root)
        for later, there in ((0.0, 6), (2 * merge.GRACE, 1)):
            merge.merge_step(store, root, "relay01", DAYS, datetime.datetime.now().timestamp() + later)
            listed = list_files(store, root)
            assert (len(listed), [one.file[3:] for one in current(listed)]) == (there, [(1, 15)])
        merged = pq.read_table(f"{root}/{listed[0].file.path}", filesystem=store, partitioning=None)
        assert merged.column("rec_no").to_pylist() == list(range(1, 16))
        assert retain(store, root, "relay01", KeepSettings(size=1), 0.0)[0] == 1
        left = store.get_file_info(pafs.FileSelector(root, recursive=True))
        assert [one.path for one in left if one.type == pafs.FileType.File] == []


def test_the_worker_merges_at_its_start_and_may_be_stopped_in_the_midst(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    for number in range(6):
        put(journal, -1000 + number % 2, f"{JOURNAL[:-1]}{number % 2}", 1 + number // 2 * 4, 4)
    expected = view(journal)
    for attempt in range(3):
        spool = Spool(str(tmp_path / "spool"))
        worker = Maintenance(spool, str(journal), "relay01", KeepSettings())
        worker.start()
        if attempt == 2:
            wait_for_child(lambda: len(list(journal.rglob("*_*.parquet"))) == 2, "merged files")
        end(worker)
        spool.close()
        assert view(journal) == expected
