"""The incremental run: in whatever order files come, and whatever kills it, the tables are those of a build."""

from __future__ import annotations

import datetime
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.errors import PipelineError
from bccnd.pipeline.stream import Span, changed, once, touched
from tests.pipeline.commands import bccn
from tests.pipeline.threedays import arrive, content, files


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"2026-03-{text}")


@pytest.mark.parametrize(
    ("low", "high", "days"),
    [
        ("02T08:00:00", "02T09:00:00", ["02"]),
        ("02T00:09:59", "02T09:00:00", ["01", "02"]),
        ("02T00:10:00", "02T23:49:59", ["02"]),
        ("02T00:10:00", "02T23:50:00", ["02", "03"]),
        ("01T12:00:00", "03T12:00:00", ["01", "02", "03"]),
    ],
)
def test_rows_touch_their_day_and_those_near_to_midnight_its_neighbour(low: str, high: str, days: list[str]) -> None:
    assert touched([(moment(low), moment(high))]) == {f"2026-03-{day}" for day in days}


def test_sessions_touch_the_days_in_which_they_differ() -> None:
    one, other = Span("h", "j", moment("01T12:00:00")), Span("h", "j", moment("04T12:00:00"))
    before = {one: moment("02T12:00:00"), other: moment("04T13:00:00")}
    assert changed(before, before) == set()
    # a stretch that goes on touches only what is new of it
    assert changed(before, {**before, one: moment("03T12:00:00")}) == {"2026-03-02", "2026-03-03"}
    assert changed(before, {one: before[one]}) == {"2026-03-04"}
    assert changed({}, before) == {"2026-03-01", "2026-03-02", "2026-03-04"}


def test_files_in_any_order_give_the_tables_of_a_build(
    spark: SparkSession, small: Path, built: Path, tmp_path: Path
) -> None:
    journal, tables, checkpoint = tmp_path / "journal", tmp_path / "tables", tmp_path / "checkpoint"
    (journal / "obs").mkdir(parents=True)
    # The host that is late has the earliest day of all; it comes after the others have gone on to the third.
    late = [path for path in files(small) if "host=h2" in str(path) and "day=2026-03-01" in str(path)]
    rest = [path for path in files(small) if path not in late]
    random.Random(7).shuffle(rest)
    half = len(rest) // 2
    assert late
    for chunk in (rest[:half], rest[half:], late):
        for path in chunk:
            arrive(small, journal, path)
        if chunk is rest[:half]:
            for path in (small / "sessions").rglob("*.parquet"):
                if "host=h3" not in str(path):
                    arrive(small, journal, path)
        if chunk is late:
            shutil.copytree(small / "sessions", journal / "sessions", dirs_exist_ok=True)
        assert once(spark, str(journal), str(tables), str(checkpoint)).days
    expected, found = content(spark, built), content(spark, tables)
    for name, rows in expected.items():
        assert found[name] == rows, name
    # and there is nothing left to do
    assert once(spark, str(journal), str(tables), str(checkpoint)).days == []
    # Lost tables are made again, although all files have been seen.
    shutil.rmtree(tables / "_state/heard/day=2026-03-03")
    assert once(spark, str(journal), str(tables), str(checkpoint)).days == ["2026-03-03"]
    assert content(spark, tables) == expected


def test_a_foreign_file_is_named_and_can_be_taken_away(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    journal, tables, checkpoint = tmp_path / "journal", tmp_path / "tables", tmp_path / "checkpoint"
    bad = journal / files(small)[0].relative_to(small)
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"PAR1 nonsense PAR1")
    for _ in range(2):
        with pytest.raises(PipelineError) as refused:
            once(spark, str(journal), str(tables), str(checkpoint))
        assert f"{bad} is no file of a journal" in str(refused.value)
    assert not tables.exists() or not (tables / "messages").exists()
    bad.unlink()
    assert once(spark, str(journal), str(tables), str(checkpoint)).days == []


def test_killed_at_any_moment_it_ends_with_the_tables_of_a_build(
    spark: SparkSession, small: Path, built: Path, tmp_path: Path
) -> None:
    tables, checkpoint = tmp_path / "tables", tmp_path / "checkpoint"
    words = ("pipeline", "stream", small, "--out", tables, "--checkpoint", checkpoint, "--once", "--master", "local[2]")
    chance = random.Random()
    moments = ("messages", "putting the tables")
    for number in range(10):
        with bccn(*words) as running:
            assert running.stderr
            said = ""
            for line in running.stderr:
                said += line
                if number < len(moments) and moments[number] in line:
                    time.sleep(chance.uniform(0, 0.4))
                    running.send_signal(signal.SIGKILL)
                    break
            running.wait()
        if running.returncode != -signal.SIGKILL:
            break
    assert running.returncode == 0, said
    assert number == len(moments)
    assert content(spark, tables) == content(spark, built)
