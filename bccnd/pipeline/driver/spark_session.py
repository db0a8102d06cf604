"""A Spark session, here or on a cluster.

Invariant: one session a process; what listens is on loopback unless a cluster elsewhere is asked for; times are UTC.
What keeps Spark from starting is one line with its remedy; the output of Spark and Java goes to a file.
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
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bccnd
from bccnd.core.formats.units import parse_heap
from bccnd.errors import PipelineError
from bccnd.pipeline.driver import java_class_archive

#: all processors of this machine; each task gets a second and a third chance, which plain local[*] does not give it
LOCAL: Final = "local[*, 3]"
#: bytes of a journal up to which its tables are made sooner if Java does not optimize its code, and if Spark does not
#: compile programs of its own
_SMALL: Final = 64 << 20
_TINY: Final = 2 << 20
_LOOPBACK: Final = "127.0.0.1"
#: the masters that Spark supports
_MASTERS: Final = re.compile(
    r"local(\[(\*|[1-9][0-9]*)(\s*,\s*[1-9][0-9]*)?\])?|spark://[^:/,]+:[0-9]+(,[^:/,]+:[0-9]+)*|yarn|k8s://\S+"
)
_JAVA: Final = 17
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: the last line of a Python traceback
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
#: where options of Java can be besides; those and Spark's settings below change its class path
_JAVA_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_PATH_VARIABLES: Final = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
_TINY_SETTINGS: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
#: Java's fast compiler and its simplest collector: both have less to start
_SMALL_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: seconds for a master to answer, and for a first worker to have room
_ANSWER: Final = 5.0
_WORKERS: Final = 60.0
#: seconds without another worker after which those that are there count as all
_SETTLED: Final = 2.0


def start(
    master: str | None = None,
    *,
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
    log: str = os.devnull,
    size: int | None = None,
) -> SparkSession:
    """A session on ``master``, by default all processors of this machine. ``memory`` is what the driver's heap may grow
    to; ``conf`` are Spark's own settings; ``size`` is that of the journal in bytes, if it is known. The output of Java
    goes to the file ``log``.

    Raises PipelineError: bad_master, bad_memory, no_java, no_localhost, no_master, no_workers.
    """
    chosen = master or os.environ.get("MASTER") or LOCAL
    if chosen.startswith("sc://"):
        # Spark Connect sends plans, not files: it has no way to give this package to workers, or to broadcast.
        why = f"{chosen} is a server of Spark Connect, which cannot send the package to the workers"
        raise PipelineError("bad_master", why, "name the cluster itself: spark://host:7077, yarn or k8s://...")
    if not _MASTERS.fullmatch(chosen):
        remedy = "write local[2], spark://host:7077, yarn or k8s://..."
        raise PipelineError("bad_master", f"{chosen!r} is not a Spark master", remedy)
    if parse_heap(memory) is None:
        raise PipelineError("bad_memory", f"{memory!r} is not a size of memory", "write 512m or 2g")
    version = _java_version()
    _check_network(chosen)
    own = {**(_TINY_SETTINGS if size is not None and size <= _TINY else {}), **(conf or {})}
    if re.match(r"local|spark://(127\.|localhost[:,])", chosen):
        own = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK} | own
        os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
        os.environ["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP") or _LOOPBACK
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        # it would listen on every address
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # what is kept of a scan is compressed already
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # of each small table in a join Spark keeps a page: by default of up to 64 MB, which it has to clear
        "spark.buffer.pageSize": "4m",
        # a stream that runs for months would fill the heap with what the page above shows of past work
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "50",
        # sources that are written in Python get the filters of a query
        "spark.sql.python.filterPushdown.enabled": "true",
        # a day in the name of a folder is text
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # else queries need Python processes of another environment, and wait until these have started, too
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        **own,
        _JAVA_OPTIONS: f"{_java_options(chosen, version, memory, own, size)} {own.get(_JAVA_OPTIONS, '')}",
    }
    session = _start(chosen, wanted, log)
    if not chosen.startswith("local"):
        _prepare(session, chosen)
    return session


def _java_options(master: str, version: str, memory: str, own: Mapping[str, str], size: int | None) -> str:
    """Options with which Java starts sooner. Of two that choose a collector or an archive, Java accepts none."""
    given = " ".join([own.get(_JAVA_OPTIONS, ""), *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])
    small = size is not None and size <= _SMALL and not re.search(r"-XX:\+Use\w+GC|-XX:TieredStop", given)
    options = _SMALL_OPTIONS if small else ""
    if master.startswith("local") and not re.search(r"-Xshare|SharedArchive|ClassList", given):
        jars = Path(os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__), "jars")
        paths = [own.get(key) for key in ("spark.driver.extraClassPath", "spark.jars", "spark.jars.packages")]
        paths += [os.environ.get(name) for name in _PATH_VARIABLES]
        wide = (parse_heap(memory) or 0) >= 32 << 10  # pointers of other size
        changed = jars.stat().st_mtime_ns if jars.exists() else 0
        relevant = [option for option in given.split() if not option.startswith(("-D", "-Xlog"))]
        options += f" {java_class_archive.options([version, str(jars), changed, paths, wide, relevant])}"
    return options


def _java_version() -> str:
    """The output of ``java -version``. Raises PipelineError: no_java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        why = "there is none" + (f" in JAVA_HOME ({home})" if home else "")
    else:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
        version = re.search(r'version "(\d+)', output.stderr)
        if version is not None and int(version[1]) >= _JAVA:
            return output.stderr
        why = f"{java} is {output.stderr.splitlines()[0] if output.stderr else f'status {output.returncode}'}"
    remedy = f"apt-get install default-jre-headless (Java {_JAVA} or later)"
    raise PipelineError("no_java", f"Spark needs Java {_JAVA} or later; {why}", remedy)


def _check_network(master: str) -> None:
    """Check what Spark's processes connect to; Spark itself would try for a minute. Raises PipelineError: no_localhost,
    no_master."""
    try:
        socket.getaddrinfo("localhost", None)
    except OSError as error:
        why = f"Spark needs localhost, and this system cannot resolve it: {error.strerror}"
        raise PipelineError("no_localhost", why, "add the line '127.0.0.1 localhost' to /etc/hosts") from error
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
    """Wait for the workers of a cluster, and send them this package. Raises PipelineError: no_workers."""
    context: Any = session.sparkContext
    deadline = time.monotonic() + _WORKERS

    def workers() -> int:
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001 -- the driver is among them

    while not workers():
        if time.monotonic() > deadline:
            session.stop()
            why = f"{master} has had no free worker for {_WORKERS:.0f} s"
            remedy = "start workers, or request less: --conf spark.executor.memory=1g --conf spark.cores.max=2"
            raise PipelineError("no_workers", why, remedy)
        time.sleep(0.2)
    # How much is done side by side follows from how many there are: those that were started together come together.
    count, since = workers(), time.monotonic()
    while time.monotonic() - since < _SETTLED:
        time.sleep(0.2)
        if workers() != count:
            count, since = workers(), time.monotonic()
    # Workers fetch it from here, whenever they come; what is compiled is for this machine.
    folder, root = tempfile.mkdtemp(prefix="bccnd-package-"), Path(bccnd.__file__).parent
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(f"{folder}/bccnd.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(root.rglob("*.py")):
            archive.write(source, str(source.relative_to(root.parent)))
    context.addPyFile(archive.filename)


def stop(*, complete: bool = False) -> None:
    """End the session of this process, if there is one, and Java; never raises. After a ``complete`` run, later ones
    start sooner: see `java_class_archive`."""
    with suppress(Exception):
        session = SparkSession.getActiveSession()
        if session is not None:
            context: Any = session.sparkContext
            gateway, server = context._gateway, context._accumulatorServer  # noqa: SLF001
            # It takes up to a second to end, for which nothing has to wait, and calls the end of Java an error.
            context._accumulatorServer = None  # noqa: SLF001
            server.handle_error = lambda *_: None
            threading.Thread(target=server.shutdown, daemon=True).start()
            session.stop()
            if gateway.proc is not None:
                SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
                gateway.shutdown()
                java_class_archive.finish(gateway.proc, complete=complete)


@contextmanager
def run_on_spark(*, size: int | None, **settings: Any) -> Iterator[SparkSession]:
    """A session for one run; see `start`. Spark's own output goes to a file, which is kept only for an error that
    it explains. Raises PipelineError."""
    # py4j logs calls that were interrupted on purpose.
    logging.disable(logging.CRITICAL)
    descriptor, log = tempfile.mkstemp(prefix="bccn-pipeline-", suffix=".log")
    os.close(descriptor)
    kept = complete = False
    try:
        session = start(log=log, size=size, **settings)
        try:
            yield session
            complete = True
        except (PySparkException, Py4JError, ConnectionError) as error:
            # Java has to be asked before it ends. If it has ended, py4j cannot connect to it.
            kept = True
            raise _explain(error, log) from error
        finally:
            stop(complete=complete)
    finally:
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
    except (Py4JError, OSError):
        remedy = f"check whether the system killed it for lack of memory (journalctl -k), or lower --memory; {remedy}"
        return PipelineError("failed", "Spark has failed: its Java process has ended", remedy)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    raised = _PYTHON_ERROR.findall(text)
    causes = [*raised[-1:], *(line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: "))]
    cause = (causes or lines)[0]
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return PipelineError("failed", f"Spark has failed: {cause[:500]}", remedy)
