"""`bccn fleet`: which host loses messages from which sender, as all hosts report it, and the faults found."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from bccnd.cli.shared.connection import fetch_listing, open_bus
from bccnd.cli.shared.options import json_option
from bccnd.cli.shared.output import print_table, to_json, visible
from bccnd.cli.shared.parameter_types import Duration
from bccnd.client.bus import Connection
from bccnd.fleet.cell_counters import MINUTES

#: seconds between two views with --watch
_WATCH: Final = 2.0
#: rows of links without --json
_ROWS: Final = 20
#: receivers and senders of a matrix
_HOSTS: Final = 12

Row = dict[str, Any]
Fleet = dict[str, list[Row]]


@click.command()
@json_option("Print one JSON object with hosts, links and findings.")
@click.option("--watch", is_flag=True, help="Print again every 2 s, until Ctrl-C.")
@click.option(
    "--for", "seconds", type=Duration(1.0, MINUTES * 60.0), metavar="TIME", help="Only this last period, up to 10m."
)
@click.option("--sent", is_flag=True, help="Only the losses of this host's messages at each other host.")
@click.option("--matrix", is_flag=True, help="Show the share of each sender's messages that each receiver loses.")
@click.option("--versions", is_flag=True, help="Show the version and the keys of each host.")
@click.pass_obj
def fleet(
    path: str | None, as_json: bool, watch: bool, seconds: float | None, sent: bool, matrix: bool, versions: bool
) -> None:
    """Show which host loses messages from which sender, the worst first, and the faults found, in words.

    Counts begin at the start of each daemon, or with --for cover the last minutes, in whole minutes. Faults are those
    of the last ten minutes, or of --for. Age is the time since a host's last report; this host's own counts are
    current.

    \b
      bccn fleet
      bccn fleet --for 5m --watch
      bccn fleet --json | jq '.findings[].text'
      bccn fleet --sent
      bccn fleet --matrix --for 1m
    """
    topic = "fleet" if seconds is None else f"fleet {math.ceil(seconds / 60)}"
    with open_bus(path) as bus:
        while True:
            found, host = _fetch(bus, topic)
            if sent:
                found["links"] = [link for link in found["links"] if link["sender"] == host]
            if watch and not as_json and sys.stdout.isatty():
                click.clear()
            if as_json:
                click.echo(to_json(found))
            elif versions:
                print_table(
                    ["host", "version", "algorithm", "signs with", "verifies with", "age"], map(_host, found["hosts"])
                )
            elif matrix:
                _print_matrix(found["links"])
            else:
                _print(found, host, sent=sent)
            if not watch:
                return
            sys.stdout.flush()
            try:
                time.sleep(_WATCH)
            except KeyboardInterrupt:
                return


def _fetch(bus: Connection, topic: str) -> tuple[Fleet, str]:
    """Return the fleet, and the name of this host in it."""
    found: Fleet = {"hosts": [], "links": [], "findings": []}
    for row in fetch_listing(bus, topic):
        for name, item in row.items():
            found.setdefault(name, []).append(item)
    (daemon,) = fetch_listing(bus, "daemon")
    return found, str(daemon["identity"]).partition("/")[0]


def _print(found: Fleet, host: str, *, sent: bool) -> None:
    links, findings = found["links"], found["findings"]
    if not sent:
        for one in findings:
            click.echo(visible(one["text"]))
    hosts = len(found["hosts"])
    if hosts < 2:
        click.echo(f"No other host has reported to {visible(host)} yet (reports.interval).")
        return
    troubled = [link for link in links if link["lost"] or link["late"]]
    shown = links if sent else troubled[:_ROWS]
    if not findings and not sent:
        click.echo(f"No faults on {hosts} hosts.")
    if shown:
        click.echo()
        print_table(["receiver", "sender", "received", "lost", "rate", "late", "duplicate", "age"], map(_link, shown))
    if not sent:
        rest = len(links) - len(shown)
        what = f"{len(troubled) - len(shown)} with losses; --json has them" if len(troubled) > len(shown) else "no loss"
        click.echo(f"{rest} {'more ' if shown else ''}links: {what}.")


def _print_matrix(links: Sequence[Row]) -> None:
    """Print the rates of loss, a row for each receiver and a column for each sender: of many, the worst."""
    receivers, senders = (list(dict.fromkeys(link[end] for link in links)) for end in ("receiver", "sender"))
    rates = {(link["receiver"], link["sender"]): loss_rate(link) or "-" for link in links}
    columns = sorted(senders[:_HOSTS])
    rows = [
        [receiver, *("" if receiver == sender else rates.get((receiver, sender), "-") for sender in columns)]
        for receiver in sorted(receivers[:_HOSTS])
    ]
    print_table(["receiver \\ sender", *columns], rows)
    more = len(receivers) - len(rows), len(senders) - len(columns)
    if any(more):
        click.echo(f"{more[0]} more receivers and {more[1]} more senders have lower losses; --json lists them.")


def loss_rate(link: Row) -> str:
    """Return the share that is lost; empty if nothing was sent."""
    due = link["received"] + link["lost"]
    if not due:
        return ""
    percent = 100 * link["lost"] / due
    return f"{percent:.2g} %" if percent < 99.5 else "100 %"


def _link(link: Row) -> Sequence[str]:
    numbers = (str(link[name]) for name in ("received", "lost"))
    return [
        link["receiver"],
        link["sender"],
        *numbers,
        loss_rate(link),
        str(link["late"]),
        str(link["duplicate"]),
        _age(link),
    ]


def _host(host: Row) -> Sequence[str]:
    first, *others = host["keys"]["fingerprints"] or [""]
    return [host["host"], host["version"], host["keys"]["algorithm"], first, " ".join(others), _age(host)]


def _age(row: Row) -> str:
    return f"{row['age_s']:.0f} s" + (" silent" if row.get("silent") else "")
