"""`bccn pipeline`: the tables of a journal, made at once or as files come."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any, Final

import click

from bccnd.cli.journals.pipeline_runners import chosen_runner, require_pipeline, runner_options
from bccnd.cli.shared.lazy_group import Entry, LazyGroup, complete_files
from bccnd.cli.shared.options import json_option
from bccnd.cli.shared.output import fail, to_json
from bccnd.cli.shared.parameter_types import Duration
from bccnd.core.formats.quoting import quote

if TYPE_CHECKING:
    from bccnd.pipeline.driver.build import Outcome

#: seconds that old tables are kept, or days stay open: ten years
_LONGEST: Final = 3653 * 86_400
#: files that a summary names
_NAMED: Final = 10


@click.group(
    cls=LazyGroup,
    entries={
        "build": Entry("journals.pipeline:build", "Make all tables of a journal from scratch", socket=False),
        "stream": Entry("journals.pipeline:stream", "Keep the tables of a journal up to date", socket=False),
        "ingest": Entry("journals.pipeline_ingest:ingest", "Write packet captures to a journal", socket=False),
        "publish": Entry("journals.pipeline_publish:publish", "Publish the findings of the report as messages"),
    },
)
def pipeline() -> None:
    """Make tables of delivery, loss, silences and refused datagrams from journals.

    \b
      bccn pipeline build /var/lib/bccnd/journal --out /var/lib/bccnd/tables
      bccn report /var/lib/bccnd/tables --out ./page
    """


def _days(_context: click.Context, _param: click.Parameter, value: str | None) -> list[str]:
    found = value.split(",") if value else []
    for day in found:
        try:
            day.encode("ascii")  # the digits of other scripts are digits to Python
            datetime.datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=datetime.UTC)
        except ValueError:
            raise click.BadParameter(
                f"{quote(day)} is not a day: write 2026-03-01, or several separated by commas"
            ) from None
    return found


_keep_option: Final = click.option(
    "--keep",
    type=Duration(3600, _LONGEST),
    default="24h",
    metavar="TIME",
    help="Time for which replaced versions of the tables stay readable.",
)
_metrics_option: Final = click.option(
    "--metrics-file",
    metavar="FILE",
    shell_complete=complete_files,
    help="Write metrics of each run to FILE, for the textfile collector of node_exporter.",
)
_tables_option: Final = click.option(
    "--out",
    "tables",
    required=True,
    metavar="TABLES",
    shell_complete=complete_files,
    help="Folder or URI of the tables.",
)


@click.command()
@click.argument("journal", shell_complete=complete_files)
@_tables_option
@click.option("--days", metavar="DAY,...", callback=_days, help="Compute only these days, also final ones.")
@_keep_option
@_metrics_option
@runner_options
@json_option("Print the summary as one line of JSON.")
def build(
    journal: str, tables: str, days: list[str], keep: float, metrics_file: str | None, as_json: bool, **settings: Any
) -> None:
    """Make all tables of a JOURNAL from scratch.

    \b
      bccn pipeline build /var/lib/bccnd/journal --out /var/lib/bccnd/tables
      bccn pipeline build /var/lib/bccnd/journal --out /var/lib/bccnd/tables --days 2026-03-01,2026-03-02
      bccn pipeline build s3://fleet/journal --out s3://fleet/tables --master spark://head:7077
      bccn pipeline build ./journal --out ./tables --embedded

    Spark does the work, on this machine unless --master names a cluster; with --embedded, this process does it, and
    needs neither Spark nor Java. JOURNAL and TABLES are paths or URIs that pyarrow can open. The tables are Delta
    tables. Days that retention has removed from the journal are removed from the tables, too. With --days, other days
    stay as they are unless the given ones affect them, and a day that has lost records to retention stays as it is. A
    run that fails changes nothing.
    """
    require_pipeline(embedded=settings["embedded"])
    with chosen_runner(journal, tables, **settings) as (runner, progress):
        from bccnd.pipeline.driver.build import build as make
        from bccnd.pipeline.driver.build import once

        if days:
            outcome = once(runner, journal, tables, progress=progress, keep=keep, days=days)
        else:
            outcome = make(runner, journal, tables, progress=progress, keep=keep)
    _summary(outcome, tables, as_json)
    _write_metrics(outcome, metrics_file)


@click.command()
@click.argument("journal", shell_complete=complete_files)
@_tables_option
@click.option("--once", is_flag=True, help="Run one pass, then exit.")
@click.option("--every", metavar="TIME", type=Duration(1, 86_400), default="60s", help="Time between two passes.")
@click.option(
    "--final-after",
    type=Duration(most=_LONGEST),
    default="7d",
    metavar="TIME",
    help="Age, in whole days, after which a day is final; 0: never.",
)
@_keep_option
@_metrics_option
@runner_options
@json_option("Print a summary of each pass as one line of JSON.")
def stream(
    journal: str,
    tables: str,
    once: bool,
    every: float,
    final_after: float,
    keep: float,
    metrics_file: str | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Keep the tables of a JOURNAL up to date: process only the files that are new since the last run.

    \b
      bccn pipeline stream /var/lib/bccnd/journal --out /var/lib/bccnd/tables --once

    Days with new files are computed again; the tables are then the same as build would make. Two kinds of days stay as
    they are: those that have lost records to retention, and final days, which are at least a week older than the newest
    day of the tables, by default. The summary names such days or files. build --days computes such days again. stream
    may be killed at any moment and started again.
    """
    require_pipeline(embedded=settings["embedded"])
    with chosen_runner(journal, tables, **settings) as (runner, progress):
        from bccnd.pipeline.driver.build import once as make

        while True:
            outcome = make(runner, journal, tables, progress=progress, keep=keep, final_after=final_after)
            if outcome.days or outcome.left or once:
                _summary(outcome, tables, as_json)
            _write_metrics(outcome, metrics_file)
            if once:
                break
            time.sleep(every)


def _write_metrics(outcome: Outcome, path: str | None) -> None:
    if path is not None:
        from bccnd.pipeline.driver.run_metrics import write_metrics

        try:
            write_metrics(path, outcome)
        except OSError as error:
            fail(f"the tables are complete, but {path} cannot be written: {error.strerror}")


def _summary(outcome: Outcome, tables: str, as_json: bool) -> None:
    if as_json:
        found = {
            "tables": tables,
            "days": outcome.days,
            "left": outcome.left,
            "late": outcome.late,
            "damaged": [{"path": file.path, "why": file.why} for file in outcome.damaged],
            "missing": [row._asdict() for row in outcome.missing],
        }
        click.echo(to_json(found | {"rows": outcome.rows, "seconds": round(outcome.seconds, 1)}))
        return
    from bccnd.journal import file_names

    if outcome.left:
        left = f"{len(outcome.left)} day{'s' * (len(outcome.left) > 1)}, {', '.join(outcome.left)}"
        click.echo(f"left as they were, since retention has taken records of them from the journal: {left}")
    for path in outcome.late[:_NAMED]:
        click.echo(f"too late, its day is final: {path}")
    if outcome.late:
        days = ",".join(sorted({file.day for file in map(file_names.read_path, outcome.late) if file is not None}))
        click.echo(
            f"to include such files ({len(outcome.late)}): bccn pipeline build JOURNAL --out {tables} --days {days}"
        )
    for file in outcome.damaged[:_NAMED]:
        click.echo(file.why)
    if len(outcome.damaged) > _NAMED:
        click.echo(f"and {len(outcome.damaged) - _NAMED} more files of the journal are left out")
    for row in outcome.missing[:_NAMED]:
        records = f"records {row.first_rec} to {row.last_rec} of {row.journal_id}"
        click.echo(f"not known yet: {row.host}'s {records} are in no file of the journal; copy it again")
    if len(outcome.missing) > _NAMED:
        click.echo(f"and {len(outcome.missing) - _NAMED} more gaps in the journal")
    if not outcome.days:
        click.echo(f"nothing new; {tables} is up to date")
        return
    width = max(map(len, outcome.rows))
    for name, rows in outcome.rows.items():
        click.echo(f"{name:<{width}}  {rows:>13,}")
    first, last = outcome.days[0], outcome.days[-1]
    days = first if first == last else f"{len(outcome.days)} days, {first} to {last}"
    click.echo(f"{days} in {outcome.seconds:.1f} s; next: bccn report {tables} --out DIR")
