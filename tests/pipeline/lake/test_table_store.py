"""Tables in their place: the state before a run or after it, whatever it dies of, on a disk and on an object store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructType

import bccnd.pipeline
from bccnd.errors import PipelineError
from bccnd.pipeline.lake import delta, parquet, table_store
from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.lake.place import Root
from tests.pipeline import object_store
from tests.refusals import refused

THREE = ((1, "01"), (2, "02"), (3, "03"))


@pytest.fixture(params=["disk", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder on a disk, and one on an object store."""
    if request.param == "s3":
        return object_store.place(request.getfixturevalue("s3"), f"{tmp_path.name}/tables")
    return str(tmp_path)


def frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    """Rows of a number and a day of January."""
    values = ", ".join(f"({number}, '2026-01-{day}')" for number, day in rows)
    return spark.sql(f"SELECT * FROM VALUES {values} AS t(x, day)").coalesce(1)


def run(
    spark: SparkSession,
    where: str,
    *rows: tuple[int, str],
    days: list[str] | None = None,
    table: str = "t",
    **how: float,
) -> None:
    """A run that writes these rows."""
    with table_store.opened(spark, where, **how) as tables:
        tables.write(table, frame(spark, *rows))
        tables.commit(None if days is None else [f"2026-01-{day}" for day in days])


def content(where: str, table: str = "t") -> dict[str, list[int]]:
    """The numbers of each day of January."""
    lake = Lake(where)
    paths = [file.path for file in lake.files(table)]
    by_day: dict[str, list[int]] = {}
    for row in parquet.load(lake.root.at(table), paths, pa.schema([("x", pa.int32())])).to_pylist():
        by_day.setdefault(row["day"][-2:], []).append(row["x"])
    return {day: sorted(values) for day, values in by_day.items()}


def files(where: str, table: str = "t") -> set[str]:
    """All files with rows below a table, of whatever version."""
    return {path for path, *_ in Root(where).files(table) if path.endswith(".parquet") and "_delta_log" not in path}


@pytest.mark.parametrize("name", ["t:10:00", "a b", "100%", "#?*", "-x"])
def test_tables_may_be_in_a_folder_of_any_name(
    spark: SparkSession, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(spark, name, *THREE)
    run(spark, name, (4, "02"), days=["02"])
    assert content(name) == {"01": [1], "02": [4], "03": [3]}
    assert Lake(name).remove_old(0) > 0
    assert files(name) == {f"t/{file.path}" for file in Lake(name).files("t")}
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a\nb", "a[b]", "a\\b", "a%20b", "\udcff", "-"])
def test_a_name_that_no_tables_can_have_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused("no_place", kind=PipelineError):
        Lake(name)


def test_a_run_puts_its_days_in_place_and_leaves_the_others(spark: SparkSession, where: str) -> None:
    run(spark, where, *THREE)
    with table_store.opened(spark, where) as tables:
        assert tables.days("t") == {"2026-01-01", "2026-01-02", "2026-01-03"}
        schema = StructType().add("x", IntegerType()).add("more", StringType())
        table = tables.read("t", schema)
        assert table is not None
        assert [tuple(row) for row in table.where("day = '2026-01-02'").collect()] == [(2, None, "2026-01-02")]
        assert tables.read("u", schema) is tables.written("t", schema) is None
    run(spark, where, (20, "02"), (21, "02"), days=["01", "02"])
    # the first had been touched, and has no rows any more
    assert content(where) == {"02": [20, 21], "03": [3]}


def test_a_run_that_fails_changes_nothing_and_leaves_nothing(spark: SparkSession, where: str) -> None:
    run(spark, where, *THREE)
    before = files(where)

    def fail() -> None:
        with table_store.opened(spark, where) as tables:
            tables.write("t", frame(spark, (2, "01")))
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()
    assert content(where) == {"01": [1], "02": [2], "03": [3]}
    assert files(where) == before


def test_a_table_that_is_whole_loses_the_days_that_were_not_written(spark: SparkSession, where: str) -> None:
    for days in (["01", "02"], ["02"]):
        with table_store.opened(spark, where) as tables:
            for table in ("t", "u", "v"):
                tables.write(table, frame(spark, *((1, day) for day in days)))
            tables.empty("w", StructType().add("x", IntegerType()))
            tables.put("all", pa.table({"x": days}))
            tables.replace("u")
            tables.commit(["2026-01-02"])
            assert tables.rows == {"t": len(days), "u": len(days), "v": len(days), "w": 0}
    assert [set(content(where, table)) for table in "tuvw"] == [{"01", "02"}, {"02"}, {"01", "02"}, set()]
    with table_store.opened(spark, where) as tables:
        assert tables.load("all", pa.schema([("x", pa.string())]))["x"].to_pylist() == ["02"]


def test_a_task_that_is_repeated_writes_its_rows_once(spark: SparkSession, where: str) -> None:
    def fail_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise ValueError("boom")

    rows = spark.range(300_000).selectExpr("cast(id AS int) AS x", "concat('2026-01-0', id % 3 + 1) AS day")
    with table_store.opened(spark, where) as tables:
        tables.write("t", rows.mapInArrow(fail_first, rows.schema))
        tables.commit(None)
    assert sorted(x for numbers in content(where).values() for x in numbers) == list(range(300_000))


def test_a_day_has_few_files_whatever_the_number_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 1000, 1, 20).selectExpr("id AS x", "concat('2026-01-0', id % 3 + 1) AS day")
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    for parts in ("2", "40"):
        spark.conf.set("spark.sql.shuffle.partitions", parts)
        try:
            with table_store.opened(spark, str(tmp_path)) as tables:
                tables.write("t", rows)
                tables.commit(None)
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", before)
        files_of: dict[str, int] = {}
        for file in Lake(str(tmp_path)).files("t"):
            files_of[file.day] = files_of.get(file.day, 0) + 1
        assert len(files_of) == 3
        assert max(files_of.values()) <= table_store.FILES
        assert bccnd.pipeline.read(spark, str(tmp_path), "t").distinct().count() == 1000


class Killed(BaseException):
    """The run has died here."""


def test_a_run_that_dies_at_any_step_of_its_commit_has_changed_nothing_or_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = str(tmp_path)
    old = {"t": {"01": [1], "02": [2]}, "u": {"01": [1]}}
    new = {"t": {"01": [10], "04": [40]}, "u": {"01": [10]}}

    def attempt(t: tuple[tuple[int, str], ...], u: tuple[int, str]) -> None:
        with table_store.opened(spark, where) as tables:
            tables.write("t", frame(spark, *t))
            tables.write("u", frame(spark, u))
            tables.commit(None)

    seen = []
    for after in count():
        attempt(((1, "01"), (2, "02")), (1, "01"))
        steps, lock = 0, threading.Lock()

        def dying(
            real: Callable[..., object], after: int = after, lock: threading.Lock = lock
        ) -> Callable[..., object]:
            def step(*args: object, **keywords: object) -> object:
                nonlocal steps
                with lock:
                    steps += 1
                    if steps > after:
                        raise Killed
                return real(*args, **keywords)

            return step

        died = False
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", dying(DeltaTable.create_write_transaction))
            patch.setattr(delta.Lake, "_put_build", dying(delta.Lake._put_build))
            try:
                attempt(((10, "01"), (40, "04")), (10, "01"))
            except Killed:
                died = True
        tables = {table: content(where, table) for table in "tu"}
        assert tables in (old, new)
        seen.append(tables == new)
        if not died:
            break
    # two tables, and the builds: twice
    assert seen == [False] * 4 + [True]


def test_a_first_run_that_dies_while_it_commits_is_followed_by_one_that_does_not(
    spark: SparkSession, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(delta.Lake, "_put_build", die)
        with pytest.raises(Killed):
            run(spark, where, *THREE)
    assert content(where) == {}
    run(spark, where, (10, "01"), (20, "02"))
    assert content(where) == {"01": [10], "02": [20]}


def test_what_runs_keep_for_later_ones_is_replaced_by_the_next_run(spark: SparkSession, where: str) -> None:
    for number in (1, 2):
        run(spark, where, (number, "01"), table=f"{delta.STATE}/kept")
        assert content(where, f"{delta.STATE}/kept") == {"01": [number]}


def meet(spark: SparkSession, where: str, table: str, *rows: tuple[int, str], days: list[str] | None = None) -> None:
    """While one run writes to a table, another begins and ends; the first one is refused."""

    with refused("in_use", kind=PipelineError), table_store.opened(spark, where) as tables:
        tables.write(table, frame(spark, (20, "02")))
        run(spark, where, *rows, days=days)
        tables.commit(["2026-01-02"])


def test_of_two_runs_that_meet_one_is_refused_and_nothing_is_deleted(spark: SparkSession, where: str) -> None:
    run(spark, where, *THREE)
    meet(spark, where, "t", (10, "01"), days=["01"])
    assert content(where) == {"01": [10], "02": [2], "03": [3]}
    run(spark, where, (30, "03"), days=["03"])
    assert content(where) == {"01": [10], "02": [2], "03": [30]}


def test_two_first_runs_or_two_that_change_other_tables_are_no_build_together(spark: SparkSession, where: str) -> None:
    meet(spark, where, "t", *THREE)
    assert content(where) == {"01": [1], "02": [2], "03": [3]}
    # Each has read what the other replaces.
    meet(spark, where, "u", (10, "01"), days=["01"])
    assert content(where) == {"01": [10], "02": [2], "03": [3]}
    assert content(where, "u") == {}


def test_a_reader_keeps_the_state_that_it_has_begun_with(spark: SparkSession, where: str) -> None:
    run(spark, where, *THREE)
    reader = Lake(where)
    table = bccnd.pipeline.read(spark, where, "t")
    assert [field.simpleString() for field in table.schema] == ["x:int", "day:date"]
    run(spark, where, (4, "04"))
    assert {file.day[-2:] for file in reader.files("t")} == {"01", "02", "03"}
    assert sorted(row.x for row in table.collect()) == [1, 2, 3]
    assert [row.x for row in bccnd.pipeline.read(spark, where, "t").collect()] == [4]
    with pytest.raises(PipelineError, match=r"no table 'v' in .*; its tables are: t"):
        bccnd.pipeline.read(spark, where, "v")


def test_old_versions_and_what_failed_runs_left_are_removed_after_their_time(
    spark: SparkSession, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spark, where, *THREE)
    first = Lake(where).files("t")
    meet(spark, where, "t", (4, "04"))
    run(spark, where, (5, "05"))
    assert len(files(where)) == 6
    assert Lake(where).remove_old(3600) == 0
    # nobody waits an hour for this test
    assert Lake(where).remove_old(0) > 0
    assert files(where) == {f"t/{file.path}" for file in Lake(where).files("t")}
    assert content(where) == {"05": [5]}
    assert not {file.path for file in first} & {file.path for file in Lake(where).files("t")}
    # once an hour a run does so itself
    monkeypatch.setattr(table_store, "_CLEANING", 1e-6)
    run(spark, where, (6, "06"), keep=0)
    assert files(where) == {f"t/{file.path}" for file in Lake(where).files("t")}


def test_builds_name_the_versions_of_the_time_that_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        run(spark, str(tmp_path), (number, "01"), keep=3600)
    builds = DeltaTable(tmp_path / "builds").to_pyarrow_table().sort_by("finished_ts").to_pylist()
    assert [dict(row["versions"]) for row in builds] == [{"t": 0}, {"t": 1}, {"t": 2}]
    assert len({row["build_id"] for row in builds}) == 3


def test_tables_of_another_version_are_refused(
    spark: SparkSession, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(delta, "FORMAT", "another")
        run(spark, where, *THREE)
    with refused("old_tables", kind=PipelineError), table_store.opened(spark, where):
        pass


def test_a_place_that_cannot_be_written_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file/tables", "nonsense://x/y", "s3://x/y?endpoint_override=127.0.0.1:1&scheme=http"):
        with pytest.raises(PipelineError) as caught, table_store.opened(spark, place):
            pass
        assert caught.value.reason == "no_place"
        assert len(str(caught.value).splitlines()) == 2


def test_a_table_that_was_damaged_by_hand_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, str(tmp_path), *THREE)
    log = tmp_path / "t/_delta_log"
    for path in log.iterdir():
        path.write_text("{")
    with refused("no_place", kind=PipelineError):
        content(str(tmp_path))
    pafs.LocalFileSystem().delete_dir(str(log))
    with refused("renewed", kind=PipelineError):
        content(str(tmp_path))
