"""The batch run: a journal becomes tables, or one line says why not, and the tables are as they were."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

import bccnd.pipeline
from bccnd.cli.main import main
from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.journal import schema as journal_schema
from bccnd.pipeline.driver.build import build
from bccnd.pipeline.driver.incremental import once
from bccnd.pipeline.inputs import journal_files
from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.tables import schema
from tests.pipeline.commands import bccn
from tests.pipeline.journals import put, rows
from tests.pipeline.threedays import content, files
from tests.support import need_root, open_to_others


@pytest.fixture
def journal(small: Path, tmp_path: Path) -> Path:
    """A journal that a test may spoil."""
    return Path(shutil.copytree(small, tmp_path / "journal"))


def test_all_tables_are_there_for_all_days(spark: SparkSession, built: Path) -> None:
    rows_by_table = content(built)
    assert {name for name, rows in rows_by_table.items() if rows} == set(schema.TABLES)
    days = {"2026-03-01", "2026-03-02", "2026-03-03"}
    assert {str(row[-1]) for row in rows_by_table["messages"]} == days
    assert sorted(os.listdir(built)) == ["_state", *sorted([*schema.TABLES, "builds"])]
    # forged: 20 datagrams, which all three hosts refused
    assert sum(row[6] for row in rows_by_table["integrity"]) == 60


def copy_as(name: str) -> Callable[[Path], object]:
    """Spoil a journal by a copy of its first file under another name, made of ``journal`` and ``first``."""

    def spoil(journal: Path) -> None:
        path = files(journal)[0]
        parts = file_names.read_path(str(path.relative_to(journal)))
        assert parts
        shutil.copyfile(
            path, path.with_name(name.format(journal=parts.journal_id, first=parts.first, on=parts.first + 7))
        )

    return spoil


def empty(journal: Path) -> None:
    for path in files(journal):
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "printed"),
    [
        (copy_as("{journal}-{first}.parquet"), "holds the same records as"),
        (empty, "{journal} has no records"),
        (lambda journal: shutil.rmtree(journal / "obs"), "no journal at {journal}"),
    ],
)
def test_a_bad_journal_is_named_and_changes_nothing(
    spark: SparkSession, journal: Path, tmp_path: Path, spoil: Callable[[Path], object], printed: str
) -> None:
    tables = tmp_path / "tables"
    (tables / "messages/day=2026-01-01").mkdir(parents=True)
    spoil(journal)
    with pytest.raises(PipelineError) as refused:
        build(spark, str(journal), str(tables))
    message, remedy = str(refused.value).splitlines()
    assert printed.format(journal=journal) in message
    assert remedy.startswith("  remedy: ")
    assert os.listdir(tables / "messages") == ["day=2026-01-01"]


def test_files_that_cannot_be_used_cost_themselves_and_are_named(
    spark: SparkSession, journal: Path, small: Path, built: Path, tmp_path: Path
) -> None:
    where = (str(journal), str(tmp_path / "tables"))
    _, second, third, *_ = files(journal)
    table = pq.read_table(second, partitioning=None)
    numbers = table["rec_no"].cast(pa.uint64())
    pq.write_table(table.set_column(table.schema.get_field_index("rec_no"), "rec_no", numbers), second)
    third.write_bytes(third.read_bytes()[:-10])
    pq.write_table(pa.table({"host": ["x"]}), next((journal / "sessions").rglob("*.parquet")))
    shutil.copytree(journal / "obs/host=h1", journal / "obs/host=h9")
    copy_as("copy.parquet")(journal)
    copy_as("{journal}-{on:012d}.parquet")(journal)
    outcome = build(spark, *where)
    named = {file.path: file.why for file in outcome.damaged}
    wrong = {
        str(path.relative_to(journal))
        for path in (*journal.glob("obs/host=h9/*/*"), *(journal / "obs").rglob("copy.parquet"), second, third)
    }
    assert wrong < set(named)
    assert len(set(named) - wrong) == 2
    for path, why in named.items():
        assert f"{journal}/{path} " in why
    losses = []
    for place in (where[1], str(built)):
        bccnd.pipeline.read(spark, place, "link_loss").createOrReplaceTempView("link_loss")
        losses.append(spark.sql("SELECT sum(lost_here) FROM link_loss").collect()[0][0])
    # What is left out is not lost.
    assert 0 < losses[0] <= losses[1]
    # A pass over the same files finds nothing new, and one over files that were put right all of it.
    assert once(spark, *where).days == []
    shutil.rmtree(journal)
    shutil.copytree(small, journal)
    outcome = once(spark, *where)
    assert outcome.damaged == []
    assert content(where[1]) == content(built)


def test_beside_retention_a_build_goes_on_with_what_is_there(
    spark: SparkSession, journal: Path, built: Path, tmp_path: Path
) -> None:
    first = files(journal)[0]
    host = first.parent.parent.name.removeprefix("host=")
    reached: list[str] = []

    def progress(step: str) -> None:
        reached.append(step)
        if reached.count("reading the journal") == 1 and first.exists():
            first.unlink()

    tables = str(tmp_path / "tables")
    assert build(spark, str(journal), tables, progress=progress).damaged == []
    assert reached.count("reading the journal") == 2
    rebuilt, expected = content(tables), content(built)
    # On the day that retention is at work on, this host counts as one that did not record.
    seen = {
        name: [row for row in rows if row[0] == host]
        for name, rows in (("now", rebuilt["link_loss"]), ("before", expected["link_loss"]))
    }
    columns = schema.TABLES["link_loss"].names
    lost, day = columns.index("lost_here"), first.parent.name.removeprefix("day=")
    assert sum(row[lost] for row in seen["now"] if str(row[-1]) == day) == 0
    assert [row for row in seen["now"] if str(row[-1]) > day] == [row for row in seen["before"] if str(row[-1]) > day]


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("glob", "old", "new", "printed"),
    [
        ("obs", "host=h1/", "host=h9/", "its column host has h1"),
        ("obs", "-03-01/", "-02-28/", "its column ts has 2026-03-01"),
        ("obs", "Z-", "Z-0", "its column journal_id has 2026"),
        ("obs", "0.parquet", "1.parquet", "its column rec_no has 0 to "),
        ("sessions", "host=h1/", "host=h9/", "its column host has h1"),
    ],
)
def test_a_file_that_lies_elsewhere_than_its_records_say_is_refused(
    tmp_path: Path, small: Path, glob: str, old: str, new: str, printed: str, statistics: bool
) -> None:
    """It would be taken for what another host received, or for another day's."""
    path = sorted((small / glob).glob("host=h1/**/*.parquet"))[0]
    columns = journal_schema.OBS if glob == "obs" else journal_schema.SESSIONS
    pq.write_table(pq.read_table(path, partitioning=None), tmp_path / "x", write_statistics=statistics)
    place = str(path.relative_to(small))
    with pq.ParquetFile(tmp_path / "x") as file:
        journal_files.check_file(file, "j", place, columns)
        moved = place.replace(old, new)
        with pytest.raises(PipelineError) as refused:
            journal_files.check_file(file, "j", moved, columns)
    assert refused.value.reason == "misplaced"
    assert f"j/{moved} is in the wrong folder: {printed}" in str(refused.value)


def rows_of(source: journal_files.Journal) -> dict[str, int]:
    """How many rows each file has."""
    ends = source.ends(file.path for file in source.files)
    return {path: file_ends.rows for path, file_ends in ends.items() if not isinstance(file_ends, PipelineError)}


def test_journals_of_two_hosts_may_have_the_same_name_and_no_payloads(tmp_path: Path) -> None:
    for host in ("relay01", "relay02"):
        path = put(tmp_path, host, "j1", 1, rows(1, 3))
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["payload"]), path)
    source = journal_files.Journal(str(tmp_path))
    counts = rows_of(source)
    assert list(counts.values()) == [3, 3]
    source.check_read(source.files, counts)


def test_a_record_that_is_in_two_files_is_refused(tmp_path: Path) -> None:
    for first, count in ((1, 9), (5, 2)):
        put(tmp_path, "relay01", "j1", first, rows(first, count))
    source = journal_files.Journal(str(tmp_path))
    counts = rows_of(source)
    with pytest.raises(PipelineError) as refused:
        source.check_read(source.files, counts)
    assert refused.value.reason == "twice"


def command(tmp_path: Path, *words: str) -> list[str]:
    """A build of a journal with one record."""
    put(tmp_path / "j", "relay01", "j1", 1, rows(1, 1))
    return ["pipeline", "build", str(tmp_path / "j"), "--out", str(tmp_path / "t"), *words]


def run(tmp_path: Path, *words: str) -> Result:
    done = CliRunner().invoke(main, command(tmp_path, *words))
    assert "Traceback" not in done.output
    assert not (tmp_path / "t").exists()
    return done


def test_what_is_wrong_with_a_command_line_or_a_master_is_one_line(tmp_path: Path) -> None:
    for words in (["--master", "nonsense"], ["--memory", "much"], ["--conf", "x"], ["--master", "sc://head:15002"]):
        assert run(tmp_path, *words).exit_code == 2
    assert "Spark Connect" in run(tmp_path, *words).output
    done = run(tmp_path, "--master", "spark://127.0.0.1:1")
    assert done.exit_code == 1
    assert "spark://127.0.0.1:1: Connection refused\n  remedy: " in done.output


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run(tmp_path)
    assert (done.exit_code, "apt-get install default-jre-headless" in done.output) == (1, True)
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert 'openjdk version "11.0.2"' in run(tmp_path).output


def test_a_system_without_localhost_gets_the_line_to_add(tmp_path: Path) -> None:
    need_root("only root can have an /etc/hosts of his own")
    (tmp_path / "hosts").write_text("")
    (tmp_path / "nsswitch.conf").write_text("hosts: files\n")
    mounts = " && ".join(f"mount --bind {tmp_path / name} /etc/{name}" for name in ("hosts", "nsswitch.conf"))
    bccn = [str(Path(sys.executable).parent / "bccn"), *command(tmp_path)]
    shell = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$0" "$@"', *bccn]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this system cannot resolve it" in done.stderr
    assert "remedy: add the line '127.0.0.1 localhost' to /etc/hosts" in done.stderr


@pytest.mark.slow
def test_interrupted_it_ends_with_a_line_and_the_tables_are_as_they_were(small: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"

    def interrupt(running: subprocess.Popen[str]) -> None:
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)

    words = ("pipeline", "build", small, "--out", tables, "--master", "local[1]")
    status, printed, errors = bccn(*words, step="reading the journal", then=interrupt)
    assert (status, printed) == (1, "")
    assert errors.splitlines()[-1] == "bccn: interrupted; the tables are unchanged"
    assert "Traceback" not in errors
    assert Lake(str(tables)).tables == set()


def test_the_summary_is_for_programs_too(spark: SparkSession, small: Path, built: Path, tmp_path: Path) -> None:
    words = ("pipeline", "build", small, "--out", tmp_path / "tables", "--master", "local[2]", "--json")
    status, printed, errors = bccn(*words)
    assert status == 0, errors
    summary = json.loads(printed)
    assert summary["days"] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    # Nothing but what the command itself is doing: no word of Java.
    assert {line.split()[0] for line in errors.splitlines()} == {"bccn:"}
    made = content(tmp_path / "tables")
    assert {name: len(rows) for name, rows in made.items()} == summary["rows"]
    assert made == content(built)
    assert not open_to_others(tmp_path / "tables")
