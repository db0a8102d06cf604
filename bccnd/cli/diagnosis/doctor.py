"""`bccn doctor`: prints what is wrong with this host, and what to do about it."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.options import color_option, json_option
from bccnd.cli.shared.output import to_json, visible, wants_colour
from bccnd.errors import ConfigError

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "ok": {"fg": "green"},
    "look": {"fg": "yellow"},
    "wrong": {"fg": "red", "bold": True},
    "not checked": {"dim": True},
}


@click.command()
@click.option(
    "--config",
    "file",
    metavar="FILE",
    shell_complete=complete_files,
    help="The daemon's configuration. [default: /etc/bccnd/bccnd.yaml]",
)
@json_option("Print the results as one JSON list.")
@color_option
@click.pass_obj
def doctor(path: str | None, /, file: str | None, as_json: bool, color: str) -> None:
    """Examine this host: print each fault, each finding that needs attention, and the remedy.

    \b
      bccn doctor
      sudo bccn doctor                 sees more: keys, the firewall, the processes at a port
      bccn doctor --json | jq '.[] | select(.state == "wrong")'

    Checks the configuration, key files, the bus and your access to it, the service and its log, the segments'
    interfaces, routes, ports and receive buffers, the firewall, gateways and certificates, metrics, limits, the
    recorder's disk and the clock. It also sends a message to itself, over the bus and over the segment. It changes
    nothing. Exit codes: 0 no fault, 1 at least one fault, 2 the configuration cannot be read.
    """
    from bccnd.doctor.probe import Probe, read_target  # other commands read no configuration
    from bccnd.doctor.result import exit_status, summary
    from bccnd.doctor.runner import run_checks

    try:
        target = read_target(file)
    except ConfigError as error:
        click.echo(f"bccn: {error}", err=True)
        sys.exit(2)
    results, colour = [], wants_colour(color)
    for one in run_checks(Probe(target, path)):
        results.append(one)
        if not as_json:
            state = click.style(one.state.ljust(11), **_STYLES[one.state])
            remedy = f"\n{' ' * 15}remedy: {visible(one.remedy)}" if one.remedy else ""
            click.echo(f"{state}  {one.check}: {visible(one.finding)}{remedy}", color=colour)
    click.echo(to_json([one._asdict() for one in results]) if as_json else f"\n{summary(results)}")
    sys.exit(exit_status(results))
