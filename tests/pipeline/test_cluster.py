"""A real cluster: a master and two workers as processes of this machine, one of them killed at work."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from tests.pipeline.commands import bccn
from tests.pipeline.threedays import content
from tests.support import wait

CLASS = Path(pyspark.__file__).parent / "bin/spark-class"
LOOPBACK = "127.0.0.1"
#: what a word of the log must look like before the process can be used
READY = {
    "master": re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)"),
    "worker": re.compile(r"Successfully registered with master (\S+)"),
}


def launch(kind: str, log: Path, *words: str) -> tuple[subprocess.Popen[bytes], str]:
    """A process of the cluster, in a group of its own, and what its log says once it is ready."""
    environment = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
    rules = log.with_suffix(".properties")
    rules.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.a.ref = c\nappender.a.type = Console\nappender.a.name = c\n"
        "appender.a.target = SYSTEM_ERR\nappender.a.layout.type = PatternLayout\nappender.a.layout.pattern = %m%n\n"
    )
    environment["SPARK_DAEMON_JAVA_OPTS"] = f"-Dlog4j2.configurationFile=file:{rules}"
    name = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(CLASS), name, "--host", LOOPBACK, "--webui-port", "0", *words],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    wait(lambda: READY[kind].search(log.read_text(errors="replace")) or process.poll() is not None, kind, 60)
    return process, READY[kind].findall(log.read_text(errors="replace"))[0]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a master, and its two workers."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master, address = launch("master", tmp_path / "master.log", "--port", "0")
        processes.append(master)
        for number in range(2):
            folder = tmp_path / f"worker{number}"
            words = ("--cores", "1", "--memory", "900m", "--work-dir", str(folder), address)
            processes.append(launch("worker", tmp_path / f"worker{number}.log", *words)[0])
        yield address, processes[1:]
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
def test_a_worker_that_is_killed_at_work_changes_nothing(
    small: Path, built: Path, tmp_path: Path, cluster: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    address, workers = cluster
    tables = tmp_path / "tables"
    words = ("--master", address, "--conf", "spark.executor.memory=600m")

    def kill(_: object) -> None:
        # with what it has started: a machine that is gone
        os.killpg(workers[0].pid, signal.SIGKILL)

    status, _, errors = bccn("pipeline", "build", small, "--out", tables, *words, step="computing", then=kill)
    assert status == 0, errors
    assert workers[0].wait() == -signal.SIGKILL
    assert content(tables) == content(built)
