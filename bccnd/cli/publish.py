"""`bccn pipeline publish`: what crossed a threshold in the tables, onto the bus.

Law: one message for each finding, once; with --dry-run they are printed, and nothing is sent or written down.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from bccnd.cli.ingest import RECORDER_EXTRA, need
from bccnd.cli.show import explain, fail, tell, the_bus
from bccnd.client.transport import usual_path
from bccnd.core.bccn1 import check_chan
from bccnd.errors import BadDatagram, JournalError


def _rules(_context: click.Context, _param: click.Parameter, given: Sequence[str]) -> dict[str, float]:
    found = {}
    for one in given:
        name, _, value = one.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise click.BadParameter(f"{one!r}: write NAME=NUMBER, like loss=0.05") from None
    return found


@click.command()
@click.argument("tables")
@click.option("--channel", required=True, metavar="CHAN", help="The channel of the messages.")
@click.option("--socket", "path", metavar="PATH", help="The daemon's socket, as of bccn itself.")
@click.option(
    "--rule",
    "rules",
    metavar="NAME=NUMBER",
    multiple=True,
    callback=_rules,
    help="Another threshold: loss, lost_everywhere, dead, restarts, integrity, skew, flood.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=1, show_default=True, help="The latest days that count.")
@click.option("--local", is_flag=True, help="Only to programs of this host.")
@click.option("--dry-run", is_flag=True, help="Print the messages instead.")
@click.pass_context
def publish(
    context: click.Context,
    tables: str,
    channel: str,
    path: str | None,
    rules: dict[str, float],
    days: int,
    local: bool,
    dry_run: bool,
) -> None:
    """Publish what crossed a threshold in TABLES, as one JSON message for each finding.

    \b
      bccn pipeline publish /var/lib/bccnd/tables --channel ops/findings
      bccn pipeline publish /var/lib/bccnd/tables --channel ops/findings --rule loss=0.05 --dry-run

    Thresholds: loss 0.01 and lost_everywhere 0.01 (shares), dead 0 (seconds of silence), restarts 3, integrity 10
    (datagrams), skew 1 (seconds), flood 1000 (messages a second). What was published once is not published again unless
    it got worse by half, or was over in between: TABLES/_state/published.json knows.
    """
    need(["pyarrow"], RECORDER_EXTRA)
    from bccnd.pipeline import publish as find

    if unknown := sorted(set(rules) - set(find.RULES)):
        raise click.UsageError(f"--rule {unknown[0]}: there are {', '.join(find.RULES)}")
    try:
        check_chan(channel.encode("utf-8", "surrogateescape"))
    except BadDatagram as wrong:
        raise click.UsageError(f"--channel {channel}: {wrong.detail}") from None
    try:
        found = find.findings(tables, rules, days)
        published = find.Published(tables)
        news = published.news(found)
        some = news[: find.MOST]
        if dry_run:
            for one in some:
                click.echo(one.message())
        else:
            _send(path or context.obj or usual_path(), channel, [one.message() for one in some], local=local)
            published.write(found, some)
    except JournalError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write down what was published: {error}\n  remedy: let this user write to {tables}")
    left = f", {len(news) - len(some)} more wait for the next run" if len(news) > len(some) else ""
    said = "would be published" if dry_run else f"published on {channel}"
    tell(f"{len(some)} findings {said}, {len(found) - len(news)} were before{left}")


def _send(path: str, channel: str, messages: Sequence[bytes], *, local: bool) -> None:
    if not messages:
        return
    with the_bus(path) as bus:
        if local:
            bus.local(True)
        for message in messages:
            bus.publish(channel, message)
        refused = bus.sync(60.0)
    if refused:
        fail(f"{explain(refused[0])}\n  remedy: nothing was written down; the next run says it again")
