"""`bccn record`: the recorder, as a service or in the foreground.

Options take precedence over the configuration. Faults are reported before anything is recorded.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from bccnd.cli.journals.pipeline_ingest import RECORDER_EXTRA, require
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.output import fail
from bccnd.errors import ConfigError, JournalError
from bccnd.file_modes import private_files


@click.command()
@click.option(
    "--config",
    "file",
    metavar="FILE",
    shell_complete=complete_files,
    help="The daemon's configuration: recorder, host and bus.path.",
)
@click.option("--journal", metavar="DIR_OR_URI", shell_complete=complete_files, help="Where to write the journal.")
@click.option("--host", metavar="NAME", help="The name of this host in the journal.")
@click.option("--rotate", metavar="TIME", help="How often a file is finished, like 60s or 10m.")
@click.option("--spool", metavar="DIR", shell_complete=complete_files, help="Folder for the log.")
@click.option(
    "--payload",
    type=click.Choice(["record", "hash", "omit"]),
    help="Keep payloads, only their hash, or nothing of them.",
)
@click.pass_obj
def record(path: str | None, /, file: str | None, **options: Any) -> None:
    """Record every datagram that arrives on the segments, with its verdict, to Parquet files.

    \b
      bccn record --journal /var/lib/bccnd/journal
      bccn record --journal ./journal --rotate 10s --payload hash

    The journal is a folder, or a URI that pyarrow can open (s3://bucket/journal). Its files are
    obs/host=NAME/day=YYYY-MM-DD/... and sessions/host=NAME/.... Records that are not yet in a finished file are in a
    log. The log survives if this program is killed; its next start converts it. Recording pauses while the disk is
    full, and continues by itself. Options that are not given are taken from the section recorder of the configuration
    (/etc/bccnd/bccnd.yaml if that exists).

    On SIGINT or SIGTERM it finishes its files and ends: exit code 0 if everything is in the journal. This requires the
    right to tap: root and the daemon's own user and group have it.
    """
    from bccnd.config import RecorderSettings, load, read_recorder

    given = {name: value for name, value in options.items() if value is not None}
    try:
        settings = load(file, resolve=False).settings
        chosen: RecorderSettings = read_recorder(settings.recorder, given)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    require(["pyarrow"], RECORDER_EXTRA)
    from bccnd.recorder import service

    try:
        with private_files():
            bus, host = path or settings.bus.path, chosen.host or settings.host
            rest = service.record(bus, chosen, host, settings.metrics.hosts)
    except JournalError as error:
        fail(str(error))
    if rest:
        fail(f"not everything is in the journal; the rest is in {rest}, for the next start")
