"""`bccn pipeline`: the tables of a journal, made on Spark, at once or as files come.

Invariant: a fault is one line with its remedy, and leaves the tables as they were. Nothing of Spark's own output
reaches the terminal; when something fails that cannot be explained, it is in a file that is named.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from bccnd.cli.ingest import ingest
from bccnd.cli.publish import publish
from bccnd.cli.show import fail, tell
from bccnd.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bccnd.pipeline.build import Outcome

#: reasons that are about the command line, not about the world
_USAGE: Final = ("bad_master", "bad_memory")
#: seconds between looks at what Spark is doing
_LOOK: Final = 0.5
#: seconds between two passes, least and most
_EVERY: Final = click.IntRange(min=1, max=86_400)


@click.group()
def pipeline() -> None:
    """Make tables of delivery, loss, silences and refused datagrams from journals, on Spark.

    \b
      bccn pipeline build /var/lib/bccnd/journal --out /var/lib/bccnd/tables
      bccn report /var/lib/bccnd/tables --out ./page
    """


for _command in (ingest, publish):
    pipeline.add_command(_command)


def _settings(_context: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{value!r} is not of the form spark.NAME=VALUE")
        found[name] = setting
    return found


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command that runs on Spark has."""
    for option in reversed(
        (
            click.option(
                "--master",
                metavar="URL",
                help="Where Spark runs: local[N], spark://HOST:7077, yarn, k8s://...; else $MASTER, else here.",
            ),
            click.option(
                "--memory",
                metavar="SIZE",
                default="2g",
                show_default=True,
                help="Memory of Spark's own process here; what does not fit goes to disk.",
            ),
            click.option(
                "--conf",
                metavar="K=V",
                multiple=True,
                callback=_settings,
                help="A setting of Spark; may be given more than once.",
            ),
        )
    ):
        command = option(command)
    return command


@pipeline.command()
@click.argument("journal")
@click.option("--out", "tables", required=True, metavar="TABLES", help="Where the tables go to.")
@spark_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
def build(journal: str, tables: str, master: str | None, memory: str, conf: dict[str, str], as_json: bool) -> None:
    """Make all tables of a JOURNAL anew.

    \b
      bccn pipeline build /var/lib/bccnd/journal --out /var/lib/bccnd/tables
      bccn pipeline build s3://fleet/journal --out s3://fleet/tables --master spark://head:7077

    JOURNAL and TABLES are paths or URIs that pyarrow can open. The tables have afterwards what the journal has: days
    that retention has taken from it are gone. A run that fails changes nothing.
    """
    _heavy()
    with session(master, memory, conf, journal) as (spark, progress):
        from bccnd.pipeline.build import build as make

        _summary(make(spark, journal, tables, progress=progress), tables, as_json)


@pipeline.command()
@click.argument("journal")
@click.option("--out", "tables", required=True, metavar="TABLES", help="Where the tables go to.")
@click.option("--checkpoint", metavar="DIR", help="Not used any more: what was seen is kept with the tables.")
@click.option("--once", is_flag=True, help="Work on what is there now, and end.")
@click.option("--every", metavar="SECONDS", type=_EVERY, default=60, show_default=True, help="Look for files so often.")
@spark_options
@click.option("--json", "as_json", is_flag=True, help="Print a summary of each pass as one line of JSON.")
def stream(
    journal: str,
    tables: str,
    checkpoint: str | None,
    once: bool,
    every: int,
    master: str | None,
    memory: str,
    conf: dict[str, str],
    as_json: bool,
) -> None:
    """Keep the tables of a JOURNAL up to date: files that came since the last time, however late, and no others.

    \b
      bccn pipeline stream /var/lib/bccnd/journal --out /var/lib/bccnd/tables --once

    The days that new files touch are computed anew; the tables are then the same as build would make. A day of which
    retention has taken records from the journal stays as it is; the summary names those that new files were for. It may
    be killed at any moment and started again.
    """
    _heavy()
    with session(master, memory, conf, journal if once else None) as (spark, progress):
        from bccnd.pipeline.stream import once as make

        while True:
            outcome = make(spark, journal, tables, checkpoint, progress=progress)
            if outcome.days or outcome.left or once:
                _summary(outcome, tables, as_json)
            if once:
                break
            time.sleep(every)


def _heavy() -> None:
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        fail("the pipeline needs pyspark and pyarrow\n  remedy: pip install 'bccnd[pipeline]'")


@contextmanager
def session(
    master: str | None, memory: str, conf: dict[str, str], journal: str | None = None
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session of Spark for a command, and a function that reports its progress. An error ends the command. With the
    ``journal`` that is read once, Java is started for its size."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from bccnd.pipeline import session as sessions
    from bccnd.pipeline.inputs import Journal, explained

    # py4j logs calls that were interrupted on purpose.
    logging.disable(logging.CRITICAL)
    descriptor, log = tempfile.mkstemp(prefix="bccn-pipeline-", suffix=".log")
    os.close(descriptor)
    kept = complete = False
    try:
        size = None if journal is None else sum(one.size for one in Journal(journal, may_be_empty=True).files)
        with _progress() as steps:
            steps.show("starting Spark")
            spark = sessions.start(master, memory=memory, conf=conf, log=log, size=size)
            steps.watch(spark)
            try:
                yield spark, steps.show
                complete = True
            finally:
                steps.watch(None)
                sessions.stop(complete=complete)
    except PipelineError as error:
        _end(error)
    except KeyboardInterrupt:
        fail("interrupted; the tables are as they were")
    except (PySparkException, Py4JError) as error:
        kept = True
        _end(explained(error, log))
    finally:
        logging.disable(logging.NOTSET)
        if not kept:
            with suppress(OSError):
                os.unlink(log)


def _end(error: PipelineError) -> NoReturn:
    tell(str(error))
    sys.exit(2 if error.reason in _USAGE else 1)


class _Steps:
    """What a run is doing, line by line."""

    def show(self, step: str) -> None:
        tell(f"{step} ...")

    def watch(self, spark: SparkSession | None) -> None:
        """There is no place for more."""


class _Bars(_Steps):
    """What a run is doing, as a bar with the tasks that Spark is at."""

    def __init__(self, show: Callable[..., None]) -> None:
        self._show = show
        self._step = ""
        self._count = -1
        self._spark: SparkSession | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def show(self, step: str) -> None:
        self._step = step
        self._count += 1
        self._show(description=step, completed=self._count, tasks="")

    def watch(self, spark: SparkSession | None) -> None:
        self._spark = spark

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK):
            spark = self._spark
            # The session may end at any moment; what it is at is not worth an error.
            with suppress(Exception):
                if spark is not None:
                    self._show(tasks=_tasks(spark))


def _tasks(spark: SparkSession) -> str:
    """What Spark is at: tasks done, and all of the stages that run now."""
    tracker = spark.sparkContext.statusTracker()
    done = total = 0
    for number in tracker.getActiveStageIds():
        stage = tracker.getStageInfo(number)
        if stage is not None:
            done += stage.numCompletedTasks
            total += stage.numTasks
    return f"{done}/{total} tasks" if total else ""


@contextmanager
def _progress() -> Iterator[_Steps]:
    """A bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Steps()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]:>16}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=_steps_of_a_run(), tasks="")
        steps = _Bars(lambda **fields: progress.update(bar, **fields))
        try:
            yield steps
        finally:
            steps.end()


def _steps_of_a_run() -> int:
    from bccnd.pipeline.build import STEPS

    return STEPS


def _summary(outcome: Outcome, tables: str, as_json: bool) -> None:
    if as_json:
        found = {
            "tables": tables,
            "days": outcome.days,
            "left": outcome.left,
            "rows": outcome.rows,
            "seconds": round(outcome.seconds, 1),
        }
        click.echo(json.dumps(found))
        return
    if outcome.left:
        left = f"{len(outcome.left)} day{'s' * (len(outcome.left) > 1)}, {', '.join(outcome.left)}"
        click.echo(f"left as they were, since retention has taken records of them from the journal: {left}")
    if not outcome.days:
        click.echo(f"nothing new; {tables} is up to date")
        return
    width = max(map(len, outcome.rows))
    for name, rows in outcome.rows.items():
        click.echo(f"{name:<{width}}  {rows:>13,}")
    first, last = outcome.days[0], outcome.days[-1]
    days = first if first == last else f"{len(outcome.days)} days, {first} to {last}"
    click.echo(f"{days} in {outcome.seconds:.1f} s; next: bccn report {tables} --out DIR")
