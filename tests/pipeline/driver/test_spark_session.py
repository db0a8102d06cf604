"""A Spark that fails in the middle of a run is one line for people, whether or not Java is still there to ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

PROGRAM = """
import os, sys
from bccnd.errors import PipelineError
from bccnd.pipeline.driver.spark_session import run_on_spark

try:
    with run_on_spark(size=0, master="local[1]", memory="512m") as spark:
        if sys.argv[1] == "task":
            spark.sparkContext.parallelize([0], 1).map(lambda number: 1 // number).collect()
        else:
            os.kill(spark.sparkContext._gateway.proc.pid, 9)
            if sys.argv[1] == "java gone":
                spark.sparkContext._gateway.proc.wait()
            spark.range(3).count()
except PipelineError as error:
    print(error.reason, error.detail, error.remedy, sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "why"), [("task", "ZeroDivisionError"), ("java", "Java"), ("java gone", "Java")])
def test_spark_fails_in_the_middle_of_a_run(fails: str, why: str) -> None:
    command = [sys.executable, "-c", PROGRAM, fails]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    reason, detail, remedy = done.stdout.splitlines()
    assert reason == "failed"
    assert why in detail
    log = Path(remedy.split()[-1])
    assert log.read_text()
    log.unlink()
