"""`bccn report`: makes a page of tables or of a journal. An earlier page stays until the new one is whole."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click

from bccnd.cli.journals.pipeline_ingest import REPORT_EXTRA, require
from bccnd.cli.journals.pipeline_runners import chosen_runner, require_pipeline, spark_options
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.options import json_option, period_options
from bccnd.cli.shared.output import fail, print_notice, to_json, visible
from bccnd.core.formats.uri import is_uri
from bccnd.errors import PipelineError

#: findings that are named on the terminal; the page has all
_NAMED: Final = 5
#: what of a finding serves only to group findings
_GROUPING: Final = ("shared", "began")


@click.command()
@click.argument("where", metavar="TABLES_OR_JOURNAL", shell_complete=complete_files)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    shell_complete=complete_files,
    help="Folder for index.html, matrix.json and matrix.csv.",
)
@period_options
@click.option("--title", metavar="TEXT", help="Headline of the page.")
@spark_options
@json_option("Print the findings as one line of JSON.")
def report(
    where: str, out: str, since: int | None, until: int | None, title: str | None, as_json: bool, **settings: Any
) -> None:
    """Make a page about arrived and lost messages and the reasons, the most important findings first.

    \b
      bccn report /var/lib/bccnd/tables --out /var/www/bccn
      bccn report ./journal --out ./page --since 2026-11-21T08:00 --until 2026-11-21T09:00

    TABLES is the output of bccn pipeline build: a path, or a URI that pyarrow can open. From a JOURNAL, tables are made
    first, in DIR/tables: by this process, or on Spark with --master. The page is one file that loads nothing: it
    can be mailed, printed, and read on a phone. matrix.json and matrix.csv beside it have the loss of every program at
    every receiver. Sets of receivers and clocks are known only by day, so the page shows whole days of them. A period
    of at most a day is compared with the same hours of the day before.
    """
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since is not before --until")
    embedded = settings["master"] is None
    if embedded and settings["conf"]:
        raise click.UsageError("--conf is for Spark: name a --master, too")
    require(["pyarrow", "deltalake", "duckdb", "jinja2"], REPORT_EXTRA)
    from bccnd.pipeline.lake.place import usable
    from bccnd.pipeline.report.delta_tables import Tables, TimeRange
    from bccnd.pipeline.report.findings import SEVERITIES
    from bccnd.pipeline.report.html_page import report as make

    def show_step(step: str) -> None:
        if sys.stderr.isatty():
            print_notice(f"{step} ...")

    try:
        if Tables(where).is_journal:
            require_pipeline(embedded=embedded)
            tables = os.path.join(out, "tables")
            if not is_uri(out):  # the page is for others, too; the tables in it are not
                with usable(out):
                    os.makedirs(out, exist_ok=True)
            with chosen_runner(where, tables, embedded=embedded, **settings) as (runner, progress):
                from bccnd.pipeline.driver.build import build

                build(runner, where, tables, progress=progress)
            print_notice(f"the tables are in {tables}; use them instead of the journal next time")
            where = tables
        path, findings = make(where, out, time=TimeRange(since, until), title=title or "", progress=show_step)
    except PipelineError as error:
        fail(str(error))
    if as_json:
        rows = [
            {name: _spaced(value) for name, value in one._asdict().items() if name not in _GROUPING}
            | {"severity": SEVERITIES[one.severity]}
            for one in findings
        ]
        click.echo(to_json({"page": path, "findings": rows}))
        return
    for one in findings[:_NAMED]:
        click.echo(f"{SEVERITIES[one.severity] + ':':<8} {visible(_spaced(one.title))}")
    if len(findings) > _NAMED:
        click.echo(f"and {len(findings) - _NAMED} more")
    if not findings:
        click.echo("nothing to act on")
    click.echo(visible(path))


def _spaced(value: Any) -> Any:
    """Text of a page for terminals and programs: with plain spaces."""
    if isinstance(value, tuple):
        return [_spaced(part) for part in value]
    return value.replace("\N{NO-BREAK SPACE}", " ") if isinstance(value, str) else value
