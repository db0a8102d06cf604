"""`bccn record`: the recorder, as a service or in the foreground.

Options take precedence over the configuration. Faults are reported before anything is recorded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from bccnd.cli.connection import TAP_REMEDY
from bccnd.cli.output import fail, print_notice
from bccnd.cli.pipeline_ingest import RECORDER_EXTRA, require
from bccnd.errors import ConfigError, JournalError

#: where records wait for a journal that is on another machine
SPOOL: Final = "/var/lib/bccnd/spool"
#: seconds between two lines of status on a terminal
_EVERY: Final = 10.0


@click.command()
@click.option("--config", "file", metavar="FILE", help="The daemon's configuration: recorder, host and bus.path.")
@click.option("--journal", metavar="DIR_OR_URI", help="Where records go to.")
@click.option("--host", metavar="NAME", help="The name of this host in the journal.")
@click.option("--rotate", metavar="TIME", help="How often a file is finished, like 60s or 10m.")
@click.option("--spool", metavar="DIR", help="Where records wait that are not in a finished file.")
@click.option("--payload", type=click.Choice(["record", "hash", "omit"]), help="What is kept of payloads.")
@click.pass_obj
def record(path: str | None, /, file: str | None, **options: Any) -> None:
    """Record every datagram that arrives on the segments, with what became of it, to Parquet files.

    \b
      bccn record --journal /var/lib/bccnd/journal
      bccn record --journal ./journal --rotate 10s --payload hash

    The journal is a folder, or a URI that pyarrow can open (s3://bucket/journal); there stand
    obs/host=NAME/day=YYYY-MM-DD/... and sessions/host=NAME/.... What is not yet in a finished file is in a log that
    survives when this program is killed; the next one puts it into the journal. While a disk is full recording pauses,
    and goes on by itself. What is not given here is taken from the section recorder of the configuration
    (/etc/bccnd/bccnd.yaml if that exists).

    Ends with SIGINT or SIGTERM, and finishes its files before: exit code 0 if everything is in the journal. Takes the
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
    try:
        whole = _run(path or settings.bus.path, chosen, chosen.host or settings.host, settings.metrics.hosts)
    except JournalError as error:
        fail(str(error))
    sys.exit(0 if whole else 1)


def _run(path: str, settings: Any, host: str, names: Sequence[str]) -> bool:
    """Record until a signal; whether everything is in the journal. Raises JournalError."""
    from bccnd import log
    from bccnd.journal import layout
    from bccnd.net.loop import Loop
    from bccnd.net.service_manager import Manager
    from bccnd.recorder.keep import Keep
    from bccnd.recorder.payload import Payloads
    from bccnd.recorder.recorder import Options, Recorder

    if not layout.is_host(host):
        raise JournalError(
            "bad_host", f"{host!r} cannot be part of a path in the journal", "give it a name with --host"
        )
    spool = _find_spool(settings.journal, host)
    log.setup("bccnd-recorder")
    options = Options(
        bus=path,
        journal=settings.journal if "://" in settings.journal else os.path.abspath(settings.journal),
        host=host,
        spool=spool if settings.spool is None else settings.spool,
        spool_size=settings.spool_size,
        rotate=settings.rotate,
        rotate_size=settings.rotate_size,
        keep=Keep(settings.keep.age, settings.keep.size),
        payloads=Payloads([(rule.channels, rule.payload) for rule in settings.payload]),
    )
    loop = Loop()
    manager = Manager.from_environment()
    recorder = Recorder(options, loop, manager)
    if settings.metrics.listen is not None:
        from bccnd.recorder.metrics import serve

        serve(recorder, loop, settings.metrics.listen, names)
    if sys.stderr.isatty():
        recorder.on_status = _StatusLines()
    whole = recorder.run()
    manager.close()
    if recorder.failed is not None:
        denied = recorder.failed.reason == "not_permitted"
        remedy = TAP_REMEDY if denied else "name the socket of a bccnd with --socket, and see 'bccn clients'"
        raise JournalError(recorder.failed.reason, recorder.failed.detail, remedy)
    if not whole:
        print_notice(f"not everything is in the journal; the rest is in {options.spool}, for the next start")
    return whole


def _find_spool(journal: str, host: str) -> str:
    """Where records wait: beside a journal on this host's own disks. Raises JournalError: bad_journal, no_journal."""
    root: str | None = os.path.abspath(journal)
    if "://" in journal:
        import pyarrow as pa  # it takes its time to load
        from pyarrow.fs import LocalFileSystem

        from bccnd.journal.files import open_root

        try:
            filesystem, place = open_root(journal)
            root = place if isinstance(filesystem, LocalFileSystem) else None
        except (pa.ArrowException, ValueError) as error:
            remedy = "write the path of a folder, or a URI that pyarrow.fs can open, like s3://bucket/journal"
            detail = f"{journal} names no journal: {str(error).splitlines()[0]}"
            raise JournalError("bad_journal", detail, remedy) from error
        except OSError:  # it may be there later
            root = None
    if root is None:
        return f"{SPOOL}/{host}"
    try:
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        remedy = "choose another place with --journal, or make this one writable for this user"
        raise JournalError("no_journal", f"cannot write to {root}: {error.strerror}", remedy) from error
    return f"{root}/.spool/{host}"


class _StatusLines:
    """Logs the status every few seconds."""

    def __init__(self) -> None:
        self._due = 0.0

    def __call__(self, text: str) -> None:
        from bccnd import log

        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY
            log.logger.info("%s", text)
