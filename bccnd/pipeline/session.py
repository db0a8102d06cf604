"""A Spark session, here or on a cluster, and what there is to say when there can be none.

Law: one session a process; nothing listens but on loopback unless a cluster elsewhere is asked for; times are UTC.
Whatever keeps Spark from starting is said in one line with its remedy. What Spark and Java say besides goes to a file,
which is nobody's business unless something went wrong that nobody can explain.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bccnd.errors import PipelineError

#: all processors of this machine; each task gets a second and a third chance, which plain local[*] does not give it
LOCAL: Final = "local[*, 3]"
#: what local sessions listen on
_LOOPBACK: Final = "127.0.0.1"
#: the masters that Spark knows
_MASTERS: Final = re.compile(
    r"local(\[(\*|[1-9][0-9]*)(\s*,\s*[1-9][0-9]*)?\])?|spark://[^:/,]+:[0-9]+(,[^:/,]+:[0-9]+)*|yarn|k8s://\S+"
)
_JAVA: Final = 17
_JAVA_REMEDY: Final = "apt-get install default-jre-headless (Java 17 or later)"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: seconds for a master to answer, and for a first worker to have room for us
_ANSWER: Final = 5.0
_WORKERS: Final = 60.0
#: what Log4j may say; the rest is of no use to anybody who has not written Spark
_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def start(
    master: str | None = None,
    *,
    name: str = "bccnd",
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
    log: str | None = None,
    **settings: str,
) -> SparkSession:
    """A session on ``master``, by default all processors of this machine. ``memory`` is what the driver's heap may
    grow to; ``conf`` are Spark's own settings, and so are ``settings``, with ``_`` for ``.``. What Java says goes to
    the file ``log``, by default one that is forgotten at once.

    Raises PipelineError: no_java, no_localhost, bad_master, no_master, no_workers.
    """
    chosen = master or os.environ.get("MASTER") or LOCAL
    if not _MASTERS.fullmatch(chosen):
        raise PipelineError(
            "bad_master", f"{chosen!r} is no Spark master", "write local[2], spark://host:7077, yarn or k8s://..."
        )
    if not re.fullmatch(r"[1-9][0-9]*[mgMG]", memory):
        raise PipelineError("bad_memory", f"{memory!r} is no size of memory", "write 512m or 2g")
    _need_java()
    _need_localhost()
    if chosen.startswith("spark://"):
        _need_master(chosen)
    local = chosen.startswith("local") or re.match(r"spark://(127\.|localhost[:,])", chosen) is not None
    with tempfile.NamedTemporaryFile("w", prefix="bccnd-log4j2-", suffix=".properties", delete=False) as rules:
        rules.write(_LOG4J)
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        # it would listen on every address
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{rules.name}",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        # sources that are written in Python are told what is asked for
        "spark.sql.python.filterPushdown.enabled": "true",
        # a host called 01 is no number, and neither is a day
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # where files come and go; a folder is listed anew each time
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **({"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK} if local else {}),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    for key, value in (conf or {}).items():
        # What Java is told besides must not undo what it is told here.
        wanted[key] = f"{wanted[key]} {value}" if key == _JAVA_OPTIONS and key in wanted else value
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    try:
        session = _start(chosen, name, wanted, log or os.devnull)
    finally:
        os.unlink(rules.name)
    if not chosen.startswith("local"):
        _prepare(session, chosen)
    return session


def _need_java() -> None:
    """Raises PipelineError: no_java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f" in JAVA_HOME ({home})" if home else ""
        raise PipelineError("no_java", f"Spark needs Java {_JAVA} or later, and there is none{where}", _JAVA_REMEDY)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    found = re.search(r'version "(\d+)', said.stderr)
    if found is None or int(found[1]) < _JAVA:
        what = said.stderr.splitlines()[0] if said.stderr else f"status {said.returncode}"
        raise PipelineError("no_java", f"Spark needs Java {_JAVA} or later; {java} is {what}", _JAVA_REMEDY)


def _need_localhost() -> None:
    """Spark's own processes find each other by that name, which a very small system may not know. Raises
    PipelineError: no_localhost."""
    try:
        socket.getaddrinfo("localhost", None)
    except OSError as error:
        raise PipelineError(
            "no_localhost",
            f"Spark needs to know where localhost is, and this system does not: {error.strerror}",
            "add the line '127.0.0.1 localhost' to /etc/hosts",
        ) from error


def _need_master(master: str) -> None:
    """Whether anybody answers there: Spark itself would try for a minute. Raises PipelineError: no_master."""
    why = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), _ANSWER).close()
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise PipelineError(
        "no_master", f"no Spark master answers at {master}: {why}", "see whether it runs, and at which address"
    )


def _start(master: str, name: str, settings: Mapping[str, str], log: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _errors_to(log):
            session: SparkSession = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise _no_session(master, error) from error
    except Exception as error:
        # py4j's own errors have no root that could be named
        if not type(error).__module__.startswith("py4j"):
            raise
        raise _no_session(master, error) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _no_session(master: str, error: Exception) -> PipelineError:
    text = str(getattr(error, "java_exception", error)).strip().splitlines() or [type(error).__name__]
    return PipelineError("no_master", f"no Spark at {master}: {text[0]}", "see --log, and Spark's own documentation")


@contextmanager
def _errors_to(log: str) -> Iterator[None]:
    """Have what is started meanwhile write its errors to a file; it keeps it for as long as it lives."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def _prepare(session: SparkSession, master: str) -> None:
    """A cluster must have a worker for us, and its Python functions need this package. Raises PipelineError:
    no_workers."""
    context: Any = session.sparkContext
    deadline = time.monotonic() + _WORKERS
    # The driver counts as one.
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # noqa: SLF001
        if time.monotonic() > deadline:
            session.stop()
            raise PipelineError(
                "no_workers",
                f"{master} has had no worker with room for us for {_WORKERS:.0f} s",
                "start workers, or ask for less: --conf spark.executor.memory=1g --conf spark.cores.max=2",
            )
        time.sleep(0.2)
    # Workers fetch it from here, whenever they come.
    folder = tempfile.mkdtemp(prefix="bccnd-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    context.addPyFile(package(folder))


def package(folder: str) -> str:
    """This package as a zip for Python functions on workers, without what is compiled for this machine."""
    found = importlib.util.find_spec("bccnd")
    if found is None or found.origin is None:
        raise PipelineError("no_package", "the package bccnd cannot be found", "install it anew")
    root = Path(found.origin).parent
    path = os.path.join(folder, "bccnd.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(root.rglob("*.py")):
            archive.write(source, str(Path("bccnd") / source.relative_to(root)))
    return path


def stop() -> None:
    """End the session of this process, if there is one; never raises."""
    with suppress(Exception):
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()
