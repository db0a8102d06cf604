"""Tables in their place: the old or the new partition, whatever a run dies of."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from bccnd.errors import PipelineError
from bccnd.pipeline import store


def frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    """Rows of a number and a day of January."""
    values = ", ".join(f"({number}, '2026-01-{day}')" for number, day in rows)
    return spark.sql(f"SELECT * FROM VALUES {values} AS t(x, day)").coalesce(1)


def run(spark: SparkSession, root: Path, *rows: tuple[int, str], days: list[str] | None = None) -> None:
    """A run that writes these rows."""
    with store.opened(spark, str(root)) as tables:
        tables.write("t", frame(spark, *rows))
        tables.commit(None if days is None else [f"2026-01-{day}" for day in days])


def content(spark: SparkSession, root: Path, table: str = "t") -> dict[str, list[int]]:
    """The numbers of each day of January."""
    found: dict[str, list[int]] = {}
    read = store.tables(spark, str(root), table)
    for row in read.collect() if read is not None else []:
        found.setdefault(str(row.day)[-2:], []).append(row.x)
    return {day: sorted(values) for day, values in found.items()}


THREE = ((1, "01"), (2, "02"), (3, "03"))


def test_a_run_puts_its_days_in_place_and_leaves_the_others(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, *THREE)
    with store.opened(spark, str(tmp_path)) as tables:
        assert tables.days("t") == {"2026-01-01", "2026-01-02", "2026-01-03"}
    run(spark, tmp_path, (20, "02"), (21, "02"), days=["01", "02"])
    # the first had been touched, and has nothing any more
    assert content(spark, tmp_path) == {"02": [20, 21], "03": [3]}
    assert sorted(os.listdir(tmp_path)) == ["_lock", "_new", "t"]
    assert os.listdir(tmp_path / "_new") == []


def test_a_run_that_fails_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def write(number: int, note: str, fault: Exception | None = None) -> None:
        with store.opened(spark, str(tmp_path)) as tables:
            tables.write("t", frame(spark, (number, "01")))
            tables.note("n", note)
            if fault:
                raise fault
            tables.commit(None)

    write(1, "one")
    with pytest.raises(ValueError, match="boom"):
        write(2, "two", ValueError("boom"))
    assert content(spark, tmp_path) == {"01": [1]}
    with store.opened(spark, str(tmp_path)) as tables:
        assert (tables.noted("n"), tables.noted("other")) == ("one", None)
    assert os.listdir(tmp_path / "_new") == []


def test_a_table_that_is_whole_loses_the_days_that_were_not_written(spark: SparkSession, tmp_path: Path) -> None:
    for days in (["01", "02"], ["02"]):
        with store.opened(spark, str(tmp_path)) as tables:
            for table in ("t", "u"):
                tables.write(table, frame(spark, *((1, day) for day in days)))
            tables.commit(["2026-01-02"], whole=["u"])
    assert set(content(spark, tmp_path, "t")) == {"01", "02"}
    assert set(content(spark, tmp_path, "u")) == {"02"}


class Killed(BaseException):
    """The run has died here."""


@pytest.mark.parametrize("elsewhere", [False, True], ids=["exchange", "two renames"])
@pytest.mark.parametrize("after", range(6))
def test_a_run_that_dies_among_its_moves_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, elsewhere: bool
) -> None:
    if elsewhere:
        monkeypatch.setattr(store, "exchange", lambda one, other: False)
    run(spark, tmp_path, *THREE)
    steps = 0

    def dying(name: str) -> Callable[..., object]:
        real: Callable[..., object] = getattr(store.Folder if name != "exchange" else store, name)

        def step(*args: object, **others: object) -> object:
            nonlocal steps
            # what begins the moves is the list of them
            if steps or str(args[-1]).endswith("/moves"):
                steps += 1
            if steps > after + 1:
                raise Killed
            return real(*args, **others)

        return step

    with monkeypatch.context() as patch:
        for name in ("move", "remove"):
            patch.setattr(store.Folder, name, dying(name))
        patch.setattr(store, "exchange", dying("exchange"))
        with pytest.raises(Killed):
            run(spark, tmp_path, (10, "01"), (20, "02"), (40, "04"))
    with store.opened(spark, str(tmp_path)):
        pass
    assert content(spark, tmp_path) == {"01": [10], "02": [20], "04": [40]}
    assert os.listdir(tmp_path / "_new") == []


def test_a_run_that_died_before_its_list_is_thrown_away(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, tmp_path, (1, "01"))
    left = tmp_path / "_new/dead/t/day=2026-01-01"
    left.mkdir(parents=True)
    (left / "x.parquet").write_bytes(b"half")
    (tmp_path / "_new/dead/moves.part").write_text('{"moves": [')
    with store.opened(spark, str(tmp_path)):
        assert content(spark, tmp_path) == {"01": [1]}
        assert os.listdir(tmp_path / "_new") == []


def test_two_runs_at_once_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with store.opened(spark, str(tmp_path)):
        with pytest.raises(PipelineError) as refused, store.opened(spark, str(tmp_path)):
            pass
        assert refused.value.reason == "in_use"
        assert f"process {os.getpid()} of" in str(refused.value)
    with store.opened(spark, str(tmp_path)):
        pass


@pytest.fixture
def afar(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> store.Folder:
    """A folder of which it is not known that it is on this machine."""
    monkeypatch.setattr(store.Folder, "local", property(lambda self: None, lambda self, value: None), raising=False)
    return store.Folder(spark, str(tmp_path))


def test_elsewhere_a_file_is_the_lock(spark: SparkSession, tmp_path: Path, afar: store.Folder) -> None:
    with store.opened(spark, str(tmp_path)) as tables:
        tables.write("t", frame(spark, (1, "01")))
        tables.commit(None)
        with pytest.raises(PipelineError, match="is at work on"), store.opened(spark, str(tmp_path)):
            pass
    assert not (tmp_path / "_lock").exists()
    assert content(spark, tmp_path) == {"01": [1]}


def test_elsewhere_a_lock_that_was_left_behind_is_known_by_its_owner(
    spark: SparkSession, tmp_path: Path, afar: store.Folder
) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    owner = {"host": os.uname().nodename, "pid": dead.pid, "started": 1}
    afar.write("_lock", json.dumps(owner))
    with store.opened(spark, str(tmp_path)):
        pass
    afar.write("_lock", json.dumps({**owner, "host": "elsewhere"}))
    with pytest.raises(PipelineError) as refused, store.opened(spark, str(tmp_path)):
        pass
    assert refused.value.remedy.endswith(f"if it is dead, remove {afar.at('_lock')}")


def test_a_place_that_cannot_be_written_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file/tables", "nonsense://x/y"):
        with pytest.raises(PipelineError) as refused, store.opened(spark, place):
            pass
        assert refused.value.reason == "no_place"
        assert len(str(refused.value).splitlines()) == 2
