"""`bccn pipeline publish`: sends the findings of the report to a channel; with --dry-run prints them only."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bccnd.cli.journals.pipeline_ingest import PIPELINE_EXTRA, require
from bccnd.cli.shared.connection import explain, open_bus
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.output import REFUSED, fail, print_notice
from bccnd.cli.shared.parameter_types import Whole
from bccnd.core.wire.bccn1 import check_chan
from bccnd.errors import BadDatagram, JournalError

_SEVERITIES = ["urgent", "look", "note"]


@click.command()
@click.argument("tables", shell_complete=complete_files)
@click.option("--channel", required=True, metavar="CHAN", help="Channel to publish on.")
@click.option("--severity", type=click.Choice(_SEVERITIES), default="look", help="Lowest severity to publish.")
@click.option("--days", type=Whole(1, 3650), default=1, help="How many of the latest days to consider.")
@click.option("--local", is_flag=True, help="Publish to programs on this host only.")
@click.option("--dry-run", is_flag=True, help="Print the messages instead of publishing them.")
@click.pass_obj
def publish(
    path: str | None, /, tables: str, channel: str, severity: str, days: int, local: bool, dry_run: bool
) -> None:
    """Publish each finding of the report on TABLES as a JSON message.

    \b
      bccn pipeline publish /var/lib/bccnd/tables --channel ops/findings
      bccn pipeline publish /var/lib/bccnd/tables --channel ops/findings --severity urgent --dry-run

    The findings are those of bccn report for the latest days. A finding is published once, and again only if it became
    worse (another severity, or 50 % more) or had ended in between. TABLES/_state/published.json keeps track of this.
    """
    require(["pyarrow", "deltalake", "duckdb", "jinja2"], PIPELINE_EXTRA)
    from bccnd.pipeline.report import publish_findings as news

    try:
        check_chan(channel.encode("utf-8", "surrogateescape"))
    except BadDatagram as wrong:
        raise click.UsageError(f"--channel {channel}: {wrong.detail}") from None
    try:
        facts, findings = news.look(tables, _SEVERITIES.index(severity), days)
        published = news.Published(tables)
        new = published.news(findings)
        some = new[: news.MOST]
        messages = [news.message(one, facts) for one in some]
        if dry_run:
            for message in messages:
                click.echo(message)
        else:
            _send(path, channel, messages, local=local)
            published.write(findings, some)
    except JournalError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot record the published findings: {error}\n  remedy: let this user write to {tables}")
    left = f", {len(new) - len(some)} more wait for the next run" if len(new) > len(some) else ""
    done = "would be published" if dry_run else f"published on {channel}"
    print_notice(f"{len(some)} findings {done}, {len(findings) - len(new)} were before{left}")


def _send(path: str | None, channel: str, messages: Sequence[bytes], *, local: bool) -> None:
    if not messages:
        return
    with open_bus(path) as bus:
        if local:
            bus.local(True)
        for message in messages:
            bus.publish(channel, message)
        refused = bus.sync(60.0)
    if refused:
        fail(f"{explain(refused[0])}\n  remedy: the next run publishes all of them again", REFUSED)
