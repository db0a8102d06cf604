"""Tables in their place: the old or the new partition, whatever a run dies of, on a disk and on an object store."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructType

from bccnd.errors import PipelineError
from bccnd.pipeline import parquet, store, store_lock
from bccnd.pipeline.store_files import Root
from tests.pipeline import object_store

THREE = ((1, "01"), (2, "02"), (3, "03"))


@pytest.fixture(params=["disk", "manifest", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder on a disk, one on a disk whose tables came from elsewhere, and one on an object store."""
    if request.param == "s3":
        return object_store.place(request.getfixturevalue("s3"), f"{tmp_path.name}/tables")
    if request.param == "manifest":
        Root(str(tmp_path)).put(store.MANIFEST, '{"files": {}}')
    return str(tmp_path)


def frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    """Rows of a number and a day of January."""
    values = ", ".join(f"({number}, '2026-01-{day}')" for number, day in rows)
    return spark.sql(f"SELECT * FROM VALUES {values} AS t(x, day)").coalesce(1)


def run(spark: SparkSession, where: str, *rows: tuple[int, str], days: list[str] | None = None) -> None:
    """A run that writes these rows."""
    with store.opened(spark, where) as tables:
        tables.write("t", frame(spark, *rows))
        tables.commit(None if days is None else [f"2026-01-{day}" for day in days])


def content(where: str, table: str = "t") -> dict[str, list[int]]:
    """The numbers of each day of January."""
    found: dict[str, list[int]] = {}
    for row in parquet.load(where, store.contents(where).get(table, []), pa.schema([("x", pa.int32())])).to_pylist():
        found.setdefault(row["day"][-2:], []).append(row["x"])
    return {day: sorted(values) for day, values in found.items()}


def leftovers(where: str) -> set[str]:
    """Files that belong to no table."""
    listed = {path for paths in store.contents(where).values() for path in paths}
    return {path for path, _ in Root(where).files()} - listed - {store.FORMAT_FILE, store.MANIFEST, store_lock.LOCK}


def test_a_run_puts_its_days_in_place_and_leaves_the_others(spark: SparkSession, where: str) -> None:
    run(spark, where, *THREE)
    with store.opened(spark, where) as tables:
        assert tables.days("t") == {"2026-01-01", "2026-01-02", "2026-01-03"}
        schema = StructType().add("x", IntegerType()).add("more", StringType())
        table = tables.read("t", schema)
        assert table is not None
        assert [tuple(row) for row in table.where("day = '2026-01-02'").collect()] == [(2, None, "2026-01-02")]
        assert tables.read("u", schema) is tables.written("t", schema) is None
    run(spark, where, (20, "02"), (21, "02"), days=["01", "02"])
    # the first had been touched, and has no rows any more
    assert content(where) == {"02": [20, 21], "03": [3]}
    assert leftovers(where) == set()


def test_a_run_that_fails_changes_nothing(spark: SparkSession, where: str) -> None:
    run(spark, where, *THREE)

    def fail() -> None:
        with store.opened(spark, where) as tables:
            tables.write("t", frame(spark, (2, "01")))
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()
    assert content(where) == {"01": [1], "02": [2], "03": [3]}
    assert leftovers(where) == set()


def test_a_table_that_is_whole_loses_the_days_that_were_not_written(spark: SparkSession, where: str) -> None:
    for days in (["01", "02"], ["02"]):
        with store.opened(spark, where) as tables:
            for table in ("t", "u", "v"):
                tables.write(table, frame(spark, *((1, day) for day in days)))
            tables.empty("w")
            tables.commit(["2026-01-02"], whole=["u"])
            assert tables.rows == {"t": len(days), "u": len(days), "v": len(days), "w": 0}
    assert [set(content(where, table)) for table in "tuvw"] == [{"01", "02"}, {"02"}, {"01", "02"}, set()]


def test_a_task_that_is_repeated_writes_its_rows_once(spark: SparkSession, where: str) -> None:
    def fail_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise ValueError("boom")

    rows = spark.range(300_000).selectExpr("cast(id AS int) AS x", "concat('2026-01-0', id % 3 + 1) AS day")
    with store.opened(spark, where) as tables:
        tables.write("t", rows.mapInArrow(fail_first, rows.schema))
        tables.commit(None)
    assert sorted(x for numbers in content(where).values() for x in numbers) == list(range(300_000))


class Killed(BaseException):
    """The run has died here."""


@pytest.mark.parametrize("way", ["exchange", "two renames", "manifest"])
def test_a_run_that_dies_at_any_step_has_changed_nothing_or_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    where = str(tmp_path)
    if way == "two renames":
        monkeypatch.setattr(store, "exchange", lambda one, other: False)
    if way == "manifest":
        Root(where).put(store.MANIFEST, '{"files": {}}')
    old = {"01": [1], "02": [2], "03": [3]}
    new = {"01": [10], "02": [20], "04": [40]}
    seen = []
    for after in count():
        run(spark, where, *THREE)
        steps = 0

        def dying(real: Callable[..., object], after: int = after) -> Callable[..., object]:
            def step(*args: object, **others: object) -> object:
                nonlocal steps
                steps += 1
                if steps > after:
                    raise Killed
                return real(*args, **others)

            return step

        died = False
        with monkeypatch.context() as patch:
            for owner, name in ((store, "exchange"), (store, "_rename"), (shutil, "rmtree")):
                patch.setattr(owner, name, dying(getattr(owner, name)))
            for name in ("put", "remove", "remove_folder"):
                patch.setattr(Root, name, dying(getattr(Root, name)))
            try:
                run(spark, where, (10, "01"), (20, "02"), (40, "04"))
            except Killed:
                died = True
        if way == "manifest":
            assert content(where) in (old, new)
        with store.opened(spark, where):
            seen.append(content(where) == new)
            assert seen[-1] or content(where) == old
        assert leftovers(where) == set()
        if not died:
            break
    assert seen == sorted(seen)
    assert len(seen) > 4
    assert (seen[0], seen[-1]) == (False, True)


def test_two_runs_at_once_are_refused(spark: SparkSession, where: str) -> None:
    with store.opened(spark, where):
        with pytest.raises(PipelineError) as refused, store.opened(spark, where):
            pass
        assert refused.value.reason == "in_use"
        assert f"process {os.getpid()} of" in str(refused.value)
    with store.opened(spark, where):
        pass


def test_elsewhere_a_file_is_the_lock(spark: SparkSession, s3: str) -> None:
    root = Root(object_store.place(s3, "locked"))
    with subprocess.Popen(["true"]) as dead:
        pass
    owner = {"host": os.uname().nodename, "pid": dead.pid, "started": 1}
    root.put(store_lock.LOCK, json.dumps(owner))
    run(spark, root.where, *THREE)
    with store.opened(spark, root.where) as one:
        one.write("t", frame(spark, (10, "01")))
        # Another run has looked for a lock before this one had it, and goes on.
        root.put(store_lock.LOCK, json.dumps({**owner, "host": "elsewhere", "pid": 1}))
        with pytest.raises(PipelineError, match="process 1 of elsewhere is at work"):
            one.commit(None)
    with pytest.raises(PipelineError) as refused, store.opened(spark, root.where):
        pass
    assert refused.value.remedy.endswith(f"if it is dead, remove {root.at('_lock')}")
    assert content(root.where) == {"01": [1], "02": [2], "03": [3]}


def test_tables_of_an_earlier_version_are_refused(spark: SparkSession, where: str) -> None:
    run(spark, where, *THREE)
    root = Root(where)
    for version in ("1", None):
        root.remove(store.FORMAT_FILE)
        if version:
            root.put(store.FORMAT_FILE, version)
        with pytest.raises(PipelineError) as refused, store.opened(spark, where):
            pass
        assert refused.value.reason == "old_tables"
    assert content(where) == {"01": [1], "02": [2], "03": [3]}


def test_a_place_that_cannot_be_written_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file/tables", "nonsense://x/y", "s3://x/y?endpoint_override=127.0.0.1:1&scheme=http"):
        with pytest.raises(PipelineError) as refused, store.opened(spark, place):
            pass
        assert refused.value.reason == "no_place"
        assert len(str(refused.value).splitlines()) == 2
