"""A Spark session, here or on a cluster, and the runner that gives it tasks.

Invariant: what listens is on loopback unless a cluster elsewhere is asked for; times are UTC; workers import nothing
from the folder in which they were started. What keeps Spark from starting is one line with its remedy; the output of
Spark and Java goes to a file.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bccnd
from bccnd.core.formats.durations_and_sizes import parse_heap
from bccnd.errors import PipelineError
from bccnd.pipeline.driver.runner import opened, run_enclosed

#: all processors of this machine; each task gets a second and a third chance, which plain local[*] does not give it
LOCAL: Final = "local[*, 3]"
#: what to do where Spark cannot start
EMBEDDED: Final = "use --embedded, which needs neither Java nor Spark"
_LOOPBACK: Final = "127.0.0.1"
#: the masters that Spark supports
_MASTERS: Final = re.compile(r"local(\[[0-9*, ]+\])?|spark://[^:/,]+:[0-9]+(,[^:/,]+:[0-9]+)*|yarn|k8s://\S+")
_JAVA: Final = 17
#: the last line of a Python traceback
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
_OTHER_PYTHON: Final = re.compile(r"PYTHON_VERSION_MISMATCH|Cannot run program|Python in worker has different version")
#: seconds for a master to answer, and for a first worker to have room
_ANSWER: Final = 5.0
_WORKERS: Final = 60.0
#: seconds without another worker after which those that are there count as all
_SETTLED: Final = 2.0
#: megabytes for DuckDB in a task, where Spark's settings do not say how much memory there is beside Java's
_OVERHEAD: Final = 1024


class SparkRunner:
    """Runs each task as a task of Spark, which repeats those that fail, and those of executors that are lost."""

    remote = True
    threads = 1

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self.tasks = self._context.defaultParallelism
        self.memory_mb = _memory(session)

    def run(self, tasks: Sequence[str]) -> list[str]:
        if not tasks:
            return []
        # A partition each: tasks are few, and take long.
        answers = self._context.parallelize(tasks, len(tasks)).map(_run_there).collect()
        return [opened(answer) for answer in answers]


def _run_there(task: str) -> str:
    """Run a task in a worker, which keeps nothing of it."""
    from bccnd.pipeline.units import engine

    try:
        return run_enclosed(task)
    finally:
        engine.close()


def _memory(session: SparkSession) -> int:
    """Megabytes that DuckDB may use in each task."""
    conf = session.sparkContext.getConf()
    if str(session.sparkContext.master).startswith("local"):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21
        return max(_OVERHEAD // 2, free // session.sparkContext.defaultParallelism)
    overhead = conf.get("spark.executor.memoryOverhead") or f"{_OVERHEAD}m"
    return int(parse_heap(overhead) or _OVERHEAD)


def start(
    master: str | None = None, *, memory: str = "2g", conf: Mapping[str, str] | None = None, log: str = os.devnull
) -> SparkSession:
    """A session on ``master``, by default all processors of this machine. ``memory`` is what the driver's heap may grow
    to; ``conf`` are Spark's own settings. The output of Java goes to the file ``log``.

    Raises PipelineError: bad_master, no_java, no_master, no_workers, other_version.
    """
    chosen = master or os.environ.get("MASTER") or LOCAL
    own = dict(conf or {})
    _check_master(chosen)
    _check_java()
    if re.match(r"local|spark://(127\.|localhost[:,])", chosen):
        own = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK} | own
        os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
        os.environ["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or _LOOPBACK
    wanted = {
        "spark.log.level": "ERROR",
        # it would listen on every address
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        # a stream that runs for months would fill the heap with what the page above shows of past work
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "50",
        # else a file named like a module of Python's library would take its place
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        **own,
        # days of the tables are days of UTC
        "spark.sql.session.timeZone": "UTC",
    }
    session = _start(chosen, wanted, log)
    try:
        _prepare(session, chosen)
    except BaseException:
        session.stop()
        raise
    return session


def _check_java() -> None:
    """Check that there is a Java that Spark can use. Raises PipelineError: no_java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        _raise_no_java("there is none" + (f" in JAVA_HOME ({home})" if home else ""))
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r'version "(\d+)', output.stderr)
    if version is None or int(version[1]) < _JAVA:
        _raise_no_java(f"{java} is {output.stderr.splitlines()[0] if output.stderr else f'status {output.returncode}'}")


def _raise_no_java(why: str) -> NoReturn:
    remedy = f"{EMBEDDED}; or: apt-get install default-jre-headless (Java {_JAVA} or later)"
    raise PipelineError("no_java", f"Spark needs Java {_JAVA} or later; {why}", remedy)


def _check_master(master: str) -> None:
    """Check that a master answers; Spark itself would try for a minute. Raises PipelineError: bad_master, no_master."""
    if not _MASTERS.fullmatch(master):
        remedy = "write local[2], spark://host:7077, yarn or k8s://..."
        raise PipelineError("bad_master", f"{master!r} is not a Spark master", remedy)
    why = ""
    for host, port in re.findall("([^:/,]+):([0-9]+)", master) if master.startswith("spark://") else ():
        try:
            socket.create_connection((host, int(port)), _ANSWER).close()
        except (OSError, OverflowError) as error:
            why = f"no Spark master answers at {master}: {getattr(error, 'strerror', None) or error}"
        else:
            return
    if why:
        raise PipelineError("no_master", why, "check that it runs at this address")


def _start(master: str, settings: Mapping[str, str], log: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("bccnd")
    for key, value in settings.items():
        builder = builder.config(key, value)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        # Java keeps it for as long as it lives.
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 2)
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        # py4j's errors have no class in common
        if not isinstance(error, (PySparkException, OSError, RuntimeError)) and "py4j" not in type(error).__module__:
            raise
        text = str(getattr(error, "java_exception", error)).strip().splitlines() or [type(error).__name__]
        raise PipelineError("no_master", f"no Spark at {master}: {text[0]}", "see Spark's documentation") from error
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    return session


def _prepare(session: SparkSession, master: str) -> None:
    """Send the package to the workers, and wait for the first one. Raises PipelineError: no_workers, other_version."""
    context = session.sparkContext
    if not master.startswith("local"):
        # Workers fetch it from here, whenever they come; what is compiled is for this machine.
        folder, root = tempfile.mkdtemp(prefix="bccnd-package-"), Path(bccnd.__file__).parent
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with zipfile.ZipFile(f"{folder}/bccnd.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for source in sorted((*root.rglob("*.py"), *root.rglob("*.sql"))):
                archive.write(source, str(source.relative_to(root.parent)))
        context.addPyFile(f"{folder}/bccnd.zip")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: context.parallelize([""], 1).map(len).collect())
        try:
            first.result(_WORKERS)
        except TimeoutError:
            context.cancelAllJobs()
            why = f"{master} has had no free worker for {_WORKERS:.0f} s"
            remedy = "start workers, or request less: --conf spark.executor.memory=1g --conf spark.cores.max=2"
            raise PipelineError("no_workers", why, remedy) from None
        except (PySparkException, Py4JError) as error:
            if _OTHER_PYTHON.search(str(error)):
                own = f"{sys.version_info.major}.{sys.version_info.minor}"
                why = f"Spark's workers need Python {own}, and PYSPARK_PYTHON is {os.environ.get('PYSPARK_PYTHON')}"
                remedy = f"set it to a Python {own} with pyarrow and duckdb that all workers have, or {EMBEDDED}"
                raise PipelineError("other_version", why, remedy) from error
            raise
    if not master.startswith("local"):
        # How much is done side by side follows from how many there are: those that were started together come together.
        count, since = context.defaultParallelism, time.monotonic()
        while time.monotonic() - since < _SETTLED:
            time.sleep(0.2)
            if context.defaultParallelism != count:
                count, since = context.defaultParallelism, time.monotonic()


def stop() -> None:
    """End the session of this process, if there is one; never raises."""
    with suppress(Exception):
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


@contextmanager
def run_on_spark(**settings: Any) -> Iterator[SparkRunner]:
    """A runner on a session for one run; see `start`. Spark's own output goes to a file, which is kept only for an
    error that it explains. Raises PipelineError."""
    # py4j logs calls that were interrupted on purpose.
    logging.disable(logging.CRITICAL)
    descriptor, log = tempfile.mkstemp(prefix="bccn-pipeline-", suffix=".log")
    os.close(descriptor)
    kept = started = False
    try:
        session = start(log=log, **settings)
        started = True
        yield SparkRunner(session)
    except (PySparkException, Py4JError, ConnectionError) as error:
        # Java has to be asked before it ends. If it has ended, py4j cannot connect to it.
        kept = True
        raise _explain(error, log) from error
    finally:
        # what was refused has started none: another one of this process goes on
        if started:
            stop()
        logging.disable(logging.NOTSET)
        if not kept:
            with suppress(OSError):
                os.unlink(log)


def _explain(error: Exception, log: str) -> PipelineError:
    """What Spark has failed with, in one line; ``log`` has the rest."""
    remedy = f"the tables are unchanged; Spark's output is in {log}"
    try:
        text = str(getattr(error, "java_exception", error))
        SparkSession.active().version  # noqa: B018 - fails if Java has ended
    except (Py4JError, PySparkException, OSError):
        remedy = f"check whether the system killed it for lack of memory (journalctl -k), or lower --memory; {remedy}"
        return PipelineError("failed", "Spark has failed: its Java process has ended", remedy)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    raised = _PYTHON_ERROR.findall(text)
    causes = [*raised[-1:], *(line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: "))]
    cause = (causes or lines)[0]
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return PipelineError("failed", f"Spark has failed: {cause[:500]}", remedy)
