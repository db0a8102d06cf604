"""A Spark session, here or on a cluster, and what there is to say when there can be none.

Law: one session a process; nothing listens but on loopback unless a cluster is asked for; times are UTC. Whatever keeps
Spark from starting is said in one line with its remedy.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bccnd.errors import PipelineError

#: all processors of this machine; each task gets a second and a third chance, which plain local[*] does not give it
LOCAL: Final = "local[*, 3]"
#: what local sessions listen on
_LOOPBACK: Final = "127.0.0.1"


def start(master: str | None = None, *, name: str = "bccnd", memory: str = "2g", **settings: str) -> SparkSession:
    """A session on ``master``, by default all processors of this machine. ``memory`` is what the driver's heap may
    grow to; ``settings`` are Spark's own, with ``_`` for ``.``.

    Raises PipelineError: no_java, no_master.
    """
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise PipelineError(
            "no_java", "Spark needs Java 17 or later, and there is none", "apt-get install default-jre-headless"
        )
    chosen = master or os.environ.get("MASTER") or LOCAL
    local = chosen.startswith("local")
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        # it would listen on every address
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        # a host called 01 is no number, and neither is a day
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        **({"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK} if local else {}),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    return _start(chosen, name, wanted)


def _start(master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise PipelineError("no_master", f"no Spark at {master}: {error}".splitlines()[0], "see --master") from error
    session.sparkContext.setLogLevel("ERROR")
    return session
