"""The choice of what makes tables: Spark, here or on a cluster, or this process.

Invariant: a fault is one line with its remedy, and leaves the tables as they were. Nothing of Spark's own output
reaches the terminal; when something fails that cannot be explained, it is in a file that is named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from bccnd.cli.journals.pipeline_ingest import PIPELINE_EXTRA, REPORT_EXTRA, require
from bccnd.cli.shared.options import compose
from bccnd.cli.shared.output import fail, print_notice
from bccnd.cli.shared.progress import show_steps
from bccnd.core.formats.durations_and_sizes import parse_heap
from bccnd.core.formats.quoting import quote
from bccnd.errors import PipelineError
from bccnd.file_modes import private_files

if TYPE_CHECKING:
    from bccnd.pipeline.units.work import Runner

#: reasons for exit code 2: errors of the command line
_USAGE: Final = ("bad_master", "keys_in_uri")
_HEAP: Final = "2g"


def _settings(_context: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{value!r} is not of the form spark.NAME=VALUE")
        found[name] = setting
    return found


def _memory(_context: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and parse_heap(value) is None:
        raise click.BadParameter(f"{quote(value)} is not a size of memory: write 512m or 2g")
    return value


#: what every command has that can run on Spark
spark_options: Final = compose(
    click.option("--master", metavar="URL", help="Where Spark runs: local[N], spark://HOST:7077, ...; else $MASTER."),
    click.option(
        "--memory",
        metavar="SIZE",
        callback=_memory,
        help=f"Maximal heap of the Spark driver ({_HEAP} by default), or what DuckDB may use in this process.",
    ),
    click.option("--conf", metavar="K=V", multiple=True, callback=_settings, help="Setting of Spark; repeatable."),
)
runner_options: Final = compose(
    click.option("--embedded", is_flag=True, help="Work in this process, without Spark and Java."), spark_options
)


def require_pipeline(*, embedded: bool) -> None:
    """End the command if a package is missing that it takes to make tables."""
    require(["duckdb", "pyarrow", "deltalake"], REPORT_EXTRA)
    if not embedded and find_spec("pyspark") is None:
        fail(f"this requires pyspark, which is not installed\n  remedy: use --embedded; or: {PIPELINE_EXTRA}")


@contextmanager
def chosen_runner(
    journal: str, tables: str, *, embedded: bool, master: str | None, memory: str | None, conf: Mapping[str, str]
) -> Iterator[tuple[Runner, Callable[[str], None]]]:
    """Yield what runs the tasks, and a function that shows steps. An error ends the command; of the places of the
    journal and the tables it does so before Spark starts, which takes long."""
    if embedded and (master or conf):
        raise click.UsageError("--embedded runs without Spark: leave out --master and --conf")
    from bccnd.pipeline.driver.build import STEPS, open_journal

    try:
        with private_files(), show_steps(STEPS + (not embedded)) as show_step:
            if embedded:
                from bccnd.pipeline.driver.embedded import EmbeddedRunner

                yield EmbeddedRunner(None if memory is None else parse_heap(memory)), show_step
                return
            open_journal(journal, tables, remote=True)
            from bccnd.pipeline.driver.spark import run_on_spark

            show_step("starting Spark")
            with run_on_spark(master=master, memory=memory or _HEAP, conf=conf) as runner:
                yield runner, show_step
    except PipelineError as error:
        print_notice(str(error))
        sys.exit(2 if error.reason in _USAGE else 1)
    except KeyboardInterrupt:
        fail("interrupted; the tables are unchanged")
