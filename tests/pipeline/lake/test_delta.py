"""Tables in their place: the state before a run or after it, whatever it dies of, on a disk and on an object store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable
from deltalake.transaction import create_table_with_add_actions

from bccnd.errors import PipelineError
from bccnd.pipeline.lake import delta, parquet, table_changes
from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.lake.place import Root
from bccnd.pipeline.lake.table_changes import WORK, TableChanges, opened
from tests.pipeline import object_store
from tests.refusals import refused

COLUMNS = pa.schema([("x", pa.int32())])
TABLES = {"t": (COLUMNS, True), "u": (COLUMNS, True), "_state/all": (COLUMNS, False)}
THREE = {"01": [1], "02": [2], "03": [3]}


@pytest.fixture(params=["disk", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder on a disk, and one on an object store."""
    if request.param == "s3":
        return object_store.place(request.getfixturevalue("s3"), f"{tmp_path.name}/tables")
    return str(tmp_path)


def put(changes: TableChanges, days: dict[str, list[int]], table: str = "t") -> None:
    """Write numbers of days of January, as tasks do it."""
    root, name = changes.lake.root, f"part-{changes.run}-1.parquet"
    for day, numbers in days.items():
        rows = pa.table({"x": numbers}, COLUMNS)
        written = [parquet.write(root, table, name, rows, f"2026-01-{day}")] if numbers else []
        changes.add(table, written, [f"2026-01-{day}"])


def run(where: str, days: dict[str, list[int]], *tables: str, keep: float = delta.KEEP) -> None:
    """A run that writes these days, by default of the table t."""
    with opened(where, TABLES) as changes:
        for table in tables or ("t",):
            put(changes, days, table)
        changes.commit(keep)


def content(where: str, table: str = "t") -> dict[str, list[int]]:
    """The numbers of each day of January."""
    by_day: dict[str, list[int]] = {}
    for row in Lake(where).load(table, COLUMNS.append(pa.field("day", pa.string()))).to_pylist():
        by_day.setdefault(row["day"][-2:], []).append(row["x"])
    return {day: sorted(values) for day, values in sorted(by_day.items())}


def files(where: str, table: str = "t") -> set[str]:
    """All files with rows below a table, of whatever version."""
    return {path for path, *_ in Root(where).files(table) if path.endswith(".parquet") and "_delta_log" not in path}


@pytest.mark.parametrize("name", ["t:10:00", "a b", "100%", "#?*", "-x", "ü", "%zz"])
def test_tables_may_be_in_a_folder_of_any_name(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(name, THREE)
    run(name, {"02": [4]})
    assert content(name) == {"01": [1], "02": [4], "03": [3]}
    assert Lake(name).remove_old(0) > 0
    assert files(name) == {f"t/{file.path}" for file in Lake(name).files("t")}
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a\nb", "a[b]", "a\\b", "a%20b", "%3A", "\udcff", "-"])
def test_a_name_that_no_tables_can_have_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused("no_place", kind=PipelineError):
        Lake(name)
    if name != "-":
        os.mkdir(name)
        os.symlink(name, "link")
        with refused("no_place", kind=PipelineError):
            Lake("link")


def test_without_hard_links_a_run_is_refused_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with refused("no_links", kind=PipelineError):
        run(str(tmp_path / "tables"), THREE)
    assert os.listdir(tmp_path / "tables") == []


def test_what_is_foreign_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir(mode=0)
    (tmp_path / "other/_delta_log").mkdir(parents=True)
    run(str(tmp_path), THREE)
    assert Lake(str(tmp_path)).tables == {*TABLES}


def test_a_run_puts_its_days_in_place_and_leaves_the_others(where: str) -> None:
    run(where, THREE)
    # the first had been touched, and has no rows any more
    run(where, {"01": [], "02": [20, 21]})
    assert content(where) == {"02": [20, 21], "03": [3]}
    for number in (1, 2):
        with opened(where, TABLES) as changes:
            changes.put("_state/all", pa.table({"x": [number]}, COLUMNS))
            changes.commit(60)
        assert Lake(where).load("_state/all", COLUMNS)["x"].to_pylist() == [number]
    with opened(where, TABLES) as changes:
        put(changes, {"05": [5]})
        changes.replace_all()
        changes.commit(60)
    assert (content(where), len(Lake(where).files("_state/all"))) == ({"05": [5]}, 0)


def test_a_run_that_fails_changes_nothing_and_leaves_nothing(where: str) -> None:
    run(where, THREE)
    before = files(where)

    def fail() -> None:
        with opened(where, TABLES) as changes:
            put(changes, {"01": [2]})
            changes.lake.root.put(f"{WORK}/{changes.run}/more/x.json", "x")
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()
    assert content(where) == THREE
    assert files(where) == before
    assert Root(where).files(WORK) == []


class Killed(BaseException):
    """The run has died here."""


def mortal(real: Callable[..., object], steps: Iterator[int]) -> Callable[..., object]:
    """A function that can be called while there are steps."""

    def take(*args: object, **keywords: object) -> object:
        if next(steps, None) is None:
            raise Killed
        return real(*args, **keywords)

    return take


@pytest.mark.parametrize("before", [{}, {"01": [1], "02": [2]}], ids=["the first run", "a later run"])
def test_a_run_that_dies_in_its_commit_changed_nothing_or_all(
    tmp_path: Path, before: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    days = {"01": [10], "04": [40]}
    after = {**before, **days}
    seen = []
    for lives in range(5):
        where = str(tmp_path / str(lives))
        if before:
            run(where, before, "t", "u")
        steps = iter(range(lives))

        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", mortal(DeltaTable.create_write_transaction, steps))
            dying = mortal(create_table_with_add_actions, steps)
            patch.setattr(f"{delta.__name__}.create_table_with_add_actions", dying)
            with suppress(Killed):
                run(where, days, "t", "u")
        tables = [content(where, table) for table in "tu"]
        assert tables in ([before] * 2, [after] * 2)
        seen.append(tables[0] == after)
        # The next run replaces what was left.
        run(where, days, "t", "u")
        assert [content(where, table) for table in "tu"] == [after] * 2
    assert seen == sorted(seen)
    assert len(set(seen)) == 2


def meet(where: str, table: str, days: dict[str, list[int]]) -> None:
    """While one run writes to a table, another begins and ends; the first one is refused."""
    with refused("in_use", kind=PipelineError), opened(where, TABLES) as changes:
        put(changes, {"02": [20]}, table)
        run(where, days)
        changes.commit(60)


def test_of_two_runs_that_meet_one_is_refused(where: str) -> None:
    meet(where, "t", THREE)
    assert content(where) == THREE
    meet(where, "t", {"01": [10]})
    assert content(where) == {"01": [10], "02": [2], "03": [3]}
    # each has read what the other replaces
    meet(where, "u", {"01": [11]})
    assert content(where) == {"01": [11], "02": [2], "03": [3]}
    assert content(where, "u") == {}
    run(where, {"03": [30]})
    assert content(where) == {"01": [11], "02": [2], "03": [30]}


def test_old_versions_and_leftovers_are_removed_after_their_time(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(where, THREE)
    meet(where, "t", {"04": [4]})
    run(where, {"01": [], "02": [], "03": [], "04": [], "05": [5]})
    Root(where).put(f"{WORK}/killed/x.json", "x")
    assert len(files(where)) == 6
    assert Lake(where).remove_old(3600) == 0
    assert Lake(where).remove_old(0) > 0
    assert files(where) == {f"t/{file.path}" for file in Lake(where).files("t")}
    assert content(where) == {"05": [5]}
    # once an hour a run does so itself
    monkeypatch.setattr(table_changes, "_CLEANING", 1e-6)
    monkeypatch.setattr(table_changes, "_ABANDONED", -60.0)
    run(where, {"05": [6]}, keep=0)
    assert files(where) == {f"t/{file.path}" for file in Lake(where).files("t")}
    assert Root(where).files(WORK) == []


def test_builds_name_the_versions_of_the_time_that_is_kept(tmp_path: Path) -> None:
    for number in range(3):
        run(str(tmp_path), {"01": [number]}, keep=3600)
    builds = DeltaTable(tmp_path / "builds").to_pyarrow_table().sort_by("finished_ts").to_pylist()
    assert [dict(row["versions"])["t"] for row in builds] == [0, 1, 2]
    assert len({row["build_id"] for row in builds}) == 3


def test_tables_of_another_version_are_refused(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(delta, "FORMAT", "another")
        run(where, THREE)
    with refused("old_tables", kind=PipelineError), opened(where, TABLES):
        pass


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (f"{tmp_path}/file/tables", "nonsense://x/y"):
        with refused("no_place", kind=PipelineError), opened(place, TABLES):
            pass


def test_a_table_that_was_damaged_by_hand_is_one_line(tmp_path: Path) -> None:
    run(str(tmp_path), THREE)
    log = tmp_path / "t/_delta_log"
    for path in log.iterdir():
        path.write_text("{")
    with refused("no_place", kind=PipelineError):
        content(str(tmp_path))
    pafs.LocalFileSystem().delete_dir(str(log))
    with refused("renewed", kind=PipelineError):
        content(str(tmp_path))
