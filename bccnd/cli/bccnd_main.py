"""`bccnd`: runs the daemon or a gateway, or checks the configuration.

Exit codes: 0 done, 1 failed in service, 2 bad usage, a bad configuration, or a start that is not possible.
"""

from __future__ import annotations

import gc
import os
import sys

import click

from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.stream_errors import ServerCommand
from bccnd.errors import ConfigError, StartError
from bccnd.gateways import NAMES
from bccnd.paths import DEFAULT_PATH
from bccnd.version import VERSION

# The configuration and the log are imported where they are used: --help and --version need neither.


@click.command(cls=ServerCommand, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--config",
    "path",
    metavar="FILE",
    shell_complete=complete_files,
    help=f"The configuration; else {DEFAULT_PATH}, else the defaults.",
)
@click.option("--check", is_flag=True, help="Check the configuration, print its faults, and exit.")
@click.option("--no-gateways", is_flag=True, help="Do not start gateways; they are separate services.")
@click.option("--gateway", metavar="NAME", type=click.Choice(NAMES), help="Run this gateway instead: nng or broker.")
@click.option("--bound", is_flag=True, hidden=True, help="End when standard input ends.")
@click.version_option(VERSION, message="bccnd %(version)s")
def main(path: str | None, check: bool, no_gateways: bool, gateway: str | None, bound: bool) -> None:
    """Carry messages between the BCCN broadcast segment and the programs of this host.

    Runs in the foreground and logs to standard error. SIGTERM ends it when pending work is done; SIGHUP reads
    the configuration again (a bad one changes nothing).

    \b
    A first look, without root:
      echo '{segments: [{address: 127.255.255.255}], bus: {path: /tmp/bus.sock}}' > /tmp/bccnd.yaml
      bccnd --config /tmp/bccnd.yaml &
      bccn --socket /tmp/bus.sock sub '' &
      bccn --socket /tmp/bus.sock pub hello world
    """
    gc.disable()  # what a start makes is no garbage, and the daemon collects when it suits
    from bccnd import log
    from bccnd.config import RECEIVE_ONLY, load

    try:
        configuration = load(path, resolve=gateway is None, shared=gateway is None and not no_gateways)
    except ConfigError as error:
        if check:
            click.echo(str(error), err=True)
        else:
            log.setup()
            more = len(error.faults) - 1
            brief = f"{error.faults[0]}{f' (and {more} more)' if more else ''}"
            _refuse(f"cannot start:\n{error}", error.faults[0].remedy, error.reason, brief)
        # While a file is edited it may be bad for a while: the daemon that started this gateway tries again.
        sys.exit(1 if bound else 2)
    if check:
        note = f"; {RECEIVE_ONLY}" if configuration.settings.integrity.receive_only else ""
        click.echo(f"{path or (DEFAULT_PATH if os.path.exists(DEFAULT_PATH) else 'the defaults')}: ok{note}")
        return
    if gateway is not None:
        from bccnd.cli.gateway import run

        gc.enable()
        sys.exit(run(gateway, configuration.settings, path, bound=bound))
    from bccnd.daemon import Daemon
    from bccnd.handover.descriptor_store import is_stored
    from bccnd.net.loop import READABLE
    from bccnd.net.service_manager import ServiceManager, take_sockets
    from bccnd.net.socket_activation import ActivatedSockets

    log.setup()
    try:
        manager = ServiceManager.from_environment()
        sockets = ActivatedSockets(take_sockets(), service=manager.available, is_stored=is_stored)
        daemon = Daemon(configuration, path, sockets, manager, gateways=not no_gateways)
    except StartError as error:
        _refuse(f"cannot start: {error}", error.remedy, error.reason, str(error))
        sys.exit(2)
    if bound:
        daemon.loop.watch(sys.stdin.fileno(), READABLE, lambda _events: daemon.loop.stop())
    daemon.run()


def _refuse(text: str, remedy: str, reason: str, brief: str) -> None:
    """Report a failed start to the log and to the service manager."""
    from bccnd import log
    from bccnd.net.service_manager import ServiceManager

    manager = ServiceManager.from_environment()
    manager.status(f"cannot start: {brief}")
    manager.close()
    log.event("start_refused", text, remedy=remedy, reason=reason)
    log.wait_until_read()
