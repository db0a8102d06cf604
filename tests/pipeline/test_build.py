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
from click.testing import CliRunner
from pyspark.sql import SparkSession

from bccnd.cli.tool import main
from bccnd.errors import PipelineError
from bccnd.journal import layout
from bccnd.journal import schema as journal_schema
from bccnd.pipeline import inputs, schema
from bccnd.pipeline.build import build
from bccnd.pipeline.inputs import Journal
from tests.pipeline.commands import bccn
from tests.pipeline.journals import put, rows
from tests.pipeline.threedays import content, files
from tests.support import need_root


@pytest.fixture
def journal(small: Path, tmp_path: Path) -> Path:
    """A journal that a test may spoil."""
    return Path(shutil.copytree(small, tmp_path / "journal"))


def test_all_tables_are_there_for_all_days(spark: SparkSession, built: Path) -> None:
    found = content(spark, built)
    assert {name for name, rows in found.items() if rows} == set(schema.TABLES)
    days = {"2026-03-01", "2026-03-02", "2026-03-03"}
    assert {str(row[-1]) for row in found["messages"]} == days
    assert sorted(os.listdir(built)) == ["_lock", "_new", "_state", *sorted(schema.TABLES)]
    assert os.listdir(built / "_new") == []
    # forged: 20 datagrams, which all three hosts refused
    assert sum(row[6] for row in found["integrity"]) == 60


def spoil_name(journal: Path) -> str:
    path = files(journal)[0].with_name("copy.parquet")
    shutil.copyfile(files(journal)[0], path)
    return "copy.parquet is no file of a journal: its name is not one that a recorder gives"


def spoil_twice(journal: Path) -> str:
    path = files(journal)[0]
    name = layout.read_path(str(path.relative_to(journal)))
    assert name
    shutil.copyfile(path, path.with_name(f"{name.journal_id}-{name.first}.parquet"))
    return "holds the same records as"


def spoil_overlap(journal: Path) -> str:
    path = files(journal)[0]
    name = layout.read_path(str(path.relative_to(journal)))
    assert name
    shutil.copyfile(path, path.with_name(f"{name.journal_id}-{name.first + 7:012d}.parquet"))
    return f"{name.first + 7:012d}.parquet holds the same records as"


def replace(journal: Path, change: Callable[[pa.Table], pa.Table]) -> str:
    path = files(journal)[1]
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)
    return f"{path} is no file of a journal: "


def spoil_foreign(journal: Path) -> str:
    return replace(journal, lambda table: pa.table({"a": [1, 2]})) + "it has no column host"


def spoil_unsigned(journal: Path) -> str:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index("rec_no")
        return table.set_column(index, "rec_no", table["rec_no"].cast(pa.uint64()))

    return replace(journal, change) + "its column rec_no is uint64, not int64"


def spoil_column(journal: Path) -> str:
    return replace(journal, lambda table: table.drop_columns(["epoch"])) + "it has no column epoch"


def spoil_bytes(journal: Path) -> str:
    path = files(journal)[2]
    path.write_bytes(path.read_bytes()[:-10])
    return f"{path} is no file of a journal: it cannot be read: "


def spoil_sessions(journal: Path) -> str:
    path = next((journal / "sessions").rglob("*.parquet"))
    pq.write_table(pa.table({"host": ["x"]}), path)
    return f"{path} is no file of a journal: it has no column journal_id"


def spoil_all(journal: Path) -> str:
    for path in files(journal):
        path.unlink()
    return f"the journal at {journal} has no records yet"


def spoil_folder(journal: Path) -> str:
    shutil.rmtree(journal / "obs")
    return f"there is no journal at {journal}: no folder obs in it"


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_name,
        spoil_twice,
        spoil_overlap,
        spoil_foreign,
        spoil_unsigned,
        spoil_column,
        spoil_bytes,
        spoil_sessions,
        spoil_all,
        spoil_folder,
    ],
)
def test_a_bad_journal_is_named_and_changes_nothing(
    spark: SparkSession, journal: Path, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    tables = tmp_path / "tables"
    (tables / "messages/day=2026-01-01").mkdir(parents=True)
    said = spoil(journal)
    with pytest.raises(PipelineError) as refused:
        build(spark, str(journal), str(tables))
    message, remedy = str(refused.value).splitlines()
    assert said in message
    assert remedy.startswith("  remedy: ")
    assert os.listdir(tables / "messages") == ["day=2026-01-01"]


def test_journals_of_two_hosts_may_have_the_same_name_and_no_payloads(spark: SparkSession, tmp_path: Path) -> None:
    for host in ("relay01", "relay02"):
        path = put(tmp_path, host, "j1", 1, rows(1, 3))
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["payload"]), path)
    source = Journal(spark, str(tmp_path))
    source.check()
    assert source.obs().where("payload is null").count() == 6


def test_rows_of_a_day_come_with_a_margin(spark: SparkSession, small: Path) -> None:
    source = Journal(spark, str(small))
    every = source.obs().select("ts").collect()
    for days in (["2026-03-02"], ["2026-03-01", "2026-03-02"], ["2026-03-01", "2026-03-03"]):
        got = source.obs(days).select("ts").collect()
        margin = inputs.MARGIN
        wanted = [
            row
            for row in every
            if {(row.ts - margin).date().isoformat(), row.ts.date().isoformat(), (row.ts + margin).date().isoformat()}
            & set(days)
        ]
        assert 0 < len(got) < len(every)
        assert sorted(got) == sorted(wanted)
    assert source.obs(["2020-01-01"]).collect() == []
    assert source.obs().select(*schema.OBS.names).schema.names == journal_schema.OBS.names


# -- the command


def test_the_command_line_is_checked_first(tmp_path: Path) -> None:
    for words in (["--master", "nonsense"], ["--memory", "much"], ["--conf", "x"]):
        done = CliRunner().invoke(main, ["pipeline", "build", "j", "--out", str(tmp_path / "t"), *words])
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.output
    assert not (tmp_path / "t").exists()


def test_a_master_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["pipeline", "build", "j", "--out", str(tmp_path / "t"), "--master", "spark://127.0.0.1:1"]
    )
    assert done.exit_code == 1
    assert "no Spark master answers at spark://127.0.0.1:1: Connection refused\n  remedy: " in done.output


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(main, ["pipeline", "build", "j", "--out", str(tmp_path / "t")])
    assert done.exit_code == 1
    assert "apt-get install default-jre-headless" in done.output
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    done = CliRunner().invoke(main, ["pipeline", "build", "j", "--out", str(tmp_path / "t")])
    assert 'is openjdk version "11.0.2"' in done.output


def test_where_nobody_is_called_localhost_it_says_what_to_write(tmp_path: Path) -> None:
    need_root("only root can have an /etc/hosts of his own")
    (tmp_path / "hosts").write_text("")
    (tmp_path / "nsswitch.conf").write_text("hosts: files\n")
    mounts = " && ".join(f"mount --bind {tmp_path / name} /etc/{name}" for name in ("hosts", "nsswitch.conf"))
    bccn = [str(Path(sys.executable).parent / "bccn"), "pipeline", "build", "j", "--out", str(tmp_path / "t")]
    command = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$0" "$@"', *bccn]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this system does not" in done.stderr
    assert "remedy: add the line '127.0.0.1 localhost' to /etc/hosts" in done.stderr


@pytest.mark.slow
def test_interrupted_it_ends_with_a_line_and_the_tables_are_as_they_were(small: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with bccn("pipeline", "build", small, "--out", tables, "--master", "local[1]") as running:
        assert running.stderr
        for line in running.stderr:
            if "epochs" in line:
                break
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        said, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert said == ""
    assert errors.splitlines()[-1] == "bccn: interrupted; the tables are as they were"
    assert "Traceback" not in errors
    assert set(os.listdir(tables)) <= {"_lock", "_new"}


def test_the_summary_is_for_programs_too(spark: SparkSession, small: Path, built: Path, tmp_path: Path) -> None:
    words = ("pipeline", "build", small, "--out", tmp_path / "tables", "--master", "local[2]", "--json")
    with bccn(*words) as running:
        said, errors = running.communicate(timeout=110)
    assert running.returncode == 0, errors
    summary = json.loads(said)
    assert summary["days"] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    # Nothing but what the command itself is doing: no word of Java.
    assert {line.split()[0] for line in errors.splitlines()} == {"bccn:"}
    there = content(spark, tmp_path / "tables")
    assert {name: len(rows) for name, rows in there.items()} == summary["rows"]
    assert there == content(spark, built)
