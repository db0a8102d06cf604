"""Tasks on Spark: the same tables as in this process; what keeps Spark from working is one line with its remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from bccnd.cli.main import main
from bccnd.errors import PipelineError
from bccnd.pipeline.driver.spark import SparkRunner
from bccnd.pipeline.units.work import Task
from tests.pipeline.commands import bccn
from tests.pipeline.journals import put, rows
from tests.pipeline.threedays import content
from tests.support import ROOT

PROGRAM = """
import os, signal, subprocess
from bccnd.errors import PipelineError
from bccnd.pipeline.driver import spark

try:
    with spark.run_on_spark(master="local[1]", memory="512m") as runner:
        java = subprocess.check_output(["pgrep", "-P", str(os.getpid()), "java"], text=True)
        os.kill(int(java), signal.SIGKILL)
        runner.run(["{}"])
except PipelineError as error:
    print(error.reason, error.detail, error.remedy, sep="\\n")
"""


def test_an_error_of_a_task_keeps_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    task = Task("verify", "", "", "nonsense://x", (), files=(("obs/x.parquet", 1, 1, ""),)).to_text()
    runner = SparkRunner(spark)
    assert runner.run([]) == []
    with pytest.raises(PipelineError) as caught:
        runner.run([task])
    assert caught.value.reason == "no_place"


@pytest.mark.slow
def test_the_end_of_java_in_a_run_is_named_and_its_output_kept() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    reason, detail, remedy = done.stdout.splitlines()
    assert (reason, "Java" in detail) == ("failed", True)
    log = Path(remedy.split()[-1])
    assert log.read_text()
    log.unlink()


@pytest.mark.slow
def test_workers_import_nothing_from_the_working_folder(small: Path, built: Path, tmp_path: Path) -> None:
    for name in ("calendar", "queue", "bccnd"):
        (tmp_path / f"{name}.py").write_text("raise ValueError('imported')")
    words = ("pipeline", "build", small, "--out", tmp_path / "tables", "--master", "local[2]")
    status, _, errors = bccn(*words, cwd=tmp_path)
    assert status == 0, errors
    assert content(tmp_path / "tables") == content(built)


BUILD = "build {folder}/j --out {folder}/t"
#: options and variables -> what the message has, and the exit code
REFUSED = {
    "no folder": ("build {folder}/none --out {folder}/t", {"PATH": "/nowhere"}, "no journal at", 1),
    "no file system": ("build nonsense://x --out {folder}/t", {"PATH": "/nowhere"}, "nonsense://x", 1),
    "no file system for a stream": ("stream nonsense://x --out {folder}/t", {"PATH": "/nowhere"}, "nonsense://x", 1),
    "a journal's keys": ("build s3://key:secret@x/j --out {folder}/t", {"PATH": "/nowhere"}, "AWS_ACCESS_KEY_ID", 2),
    "keys of tables": ("build {folder}/j --out s3://key:secret@x/t", {"PATH": "/nowhere"}, "AWS_ACCESS_KEY_ID", 2),
    "no master": (f"{BUILD} --master nonsense", {}, "nonsense", 2),
    "no size": (f"{BUILD} --memory much", {}, "much", 2),
    "no setting": (f"{BUILD} --conf x", {}, "spark.NAME=VALUE", 2),
    "both drivers": (f"{BUILD} --embedded --master local[2]", {}, "--master", 2),
    "no day": (f"{BUILD} --days 2026-03-01,yesterday", {}, "'yesterday'", 2),
    "no master there": (f"{BUILD} --master spark://127.0.0.1:1", {}, "Connection refused\n  remedy: ", 1),
    "no Java": (BUILD, {"PATH": "/nowhere", "JAVA_HOME": ""}, "--embedded", 1),
    "no Java at its home": (BUILD, {"JAVA_HOME": "/nowhere"}, "apt-get install default-jre-headless", 1),
    "old Java": (BUILD, {"JAVA_HOME": "{folder}"}, 'openjdk version "11.0.2"', 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_keeps_spark_from_working_is_one_line(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are checked first: those that cannot be used are named where Spark cannot start at all."""
    words, variables, says, status = REFUSED[name]
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value.format(folder=tmp_path))
    put(tmp_path / "j", "relay01", "j1", 1, rows(1, 1))
    done = CliRunner().invoke(main, ["pipeline", *words.format(folder=tmp_path).split()])
    assert (done.exit_code, says in done.output) == (status, True), done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "t").exists()
