"""`bccn doctor`: what is wrong with this host, and what to do about it.

Law: nothing is changed, and nobody but ourselves gets a message. Exit 0 when all is well, 1 when something is wrong, 2
when there is no configuration to look at.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from bccnd.cli.show import visible, wants_colour
from bccnd.errors import ConfigError

if TYPE_CHECKING:
    from bccnd.doctor.finding import Finding

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "ok": {"fg": "green"},
    "look": {"fg": "yellow"},
    "wrong": {"fg": "red", "bold": True},
    "not checked": {"dim": True},
}
#: what stands in front of a finding, as wide as the longest of them
_WIDTH: Final = max(map(len, _STYLES))


@click.command()
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The daemon's configuration. Without it /etc/bccnd/bccnd.yaml if that exists, else the defaults.",
)
@click.option("--json", "as_json", is_flag=True, help="The findings as one JSON list.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.pass_context
def doctor(context: click.Context, /, file: str | None, as_json: bool, color: str) -> None:
    """Examine this host: what is well, what somebody should look at, what is wrong, and what to do about it.

    \b
      bccn doctor
      sudo bccn doctor                 sees more: keys, the firewall, who holds a port
      bccn doctor --json | jq '.[] | select(.state == "wrong")'

    Looks at the configuration, key files, the bus and who may use it, the service, the segments' interfaces, ways,
    ports and receive buffers, the firewall, gateways and certificates, metrics, limits, the recorder's disk and the
    clock; and sends a message to itself, over the bus and over the segment. Nothing is changed. Without root it says
    what it could not see. Exit codes: 0 nothing is wrong, 1 something is, 2 the configuration cannot be read.
    """
    from bccnd.doctor.examine import examine, read  # most commands read no configuration
    from bccnd.doctor.finding import exit_status

    try:
        found = read(file)
    except ConfigError as error:
        click.echo(f"bccn: {error}", err=True)
        sys.exit(2)
    parent = context.find_root()
    given = parent.get_parameter_source("path") is not ParameterSource.DEFAULT
    findings = []
    colour = wants_colour(color)
    for one in examine(found, context.obj if given else None):
        findings.append(one)
        if not as_json:
            _show(one, colour=colour)
    if as_json:
        click.echo(json.dumps([one._asdict() for one in findings]))
    else:
        click.echo(f"\n{_summary(findings)}")
    sys.exit(exit_status(findings))


def _show(one: Finding, *, colour: bool) -> None:
    state = one.state.ljust(_WIDTH)
    if colour:
        state = click.style(state, **_STYLES[one.state])
    click.echo(f"{state}  {one.check}: {visible(one.finding)}", color=colour)
    if one.remedy:
        click.echo(f"{' ' * _WIDTH}    remedy: {visible(one.remedy)}")


def _summary(findings: list[Finding]) -> str:
    from bccnd.doctor.finding import STATES

    counts = [(state, sum(one.state == state for one in findings)) for state in STATES]
    return ", ".join(f"{count} {'to look at' if state == 'look' else state}" for state, count in counts if count)
