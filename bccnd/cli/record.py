"""`bccn record`: the recorder, as a service or in the foreground.

Law: what the command line says goes before what the file says. What is wrong is told before anything is recorded.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from bccnd.cli.show import fail
from bccnd.errors import ConfigError, JournalError

#: where logs go whose journal is on another machine
SPOOL: Final = "/var/lib/bccnd/spool"
#: seconds between two lines about how it goes, on a terminal
_EVERY: Final = 10.0


@click.command()
@click.option(
    "--config", "file", metavar="FILE", help="The daemon's configuration, for its section recorder, host and bus.path."
)
@click.option("--journal", metavar="DIR_OR_URI", help="Where records go to.")
@click.option("--host", metavar="NAME", help="As which host they stand there.")
@click.option("--rotate", metavar="TIME", help="How often a file is finished, like 60s or 10m.")
@click.option("--spool", metavar="DIR", help="Where records wait that are not in a finished file.")
@click.option("--payload", type=click.Choice(["record", "hash", "omit"]), help="What is kept of payloads.")
@click.pass_context
def record(
    context: click.Context,
    /,
    file: str | None,
    journal: str | None,
    host: str | None,
    rotate: str | None,
    spool: str | None,
    payload: str | None,
) -> None:
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

    given: dict[str, Any] = {"journal": journal, "host": host, "rotate": rotate, "spool": spool, "payload": payload}
    try:
        settings = load(file, resolve=False).settings
        chosen: RecorderSettings = read_recorder(settings.recorder, {k: v for k, v in given.items() if v is not None})
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    path = context.obj
    source = context.parent.get_parameter_source("path") if context.parent is not None else None
    if source is click.core.ParameterSource.DEFAULT:
        path = settings.bus.path
    if importlib.util.find_spec("pyarrow") is None:
        fail("recording needs pyarrow\n  remedy: pip install 'bccnd[recorder]'")
    try:
        whole = _run(path, chosen, chosen.host or settings.host, settings.metrics.hosts)
    except JournalError as error:
        fail(str(error))
    sys.exit(0 if whole else 1)


def _run(path: str, settings: Any, host: str, names: Sequence[str]) -> bool:
    """Record until we are told to end; whether everything is in the journal. Raises JournalError."""
    from bccnd.cli.show import tell
    from bccnd.journal import layout
    from bccnd.net import log
    from bccnd.net.loop import Loop
    from bccnd.net.systemd import Manager
    from bccnd.recorder.keep import Keep
    from bccnd.recorder.payload import Payloads
    from bccnd.recorder.recorder import Options, Recorder

    if not layout.is_host(host):
        raise JournalError(
            "bad_host", f"{host!r} cannot be part of a path in the journal", "give it a name with --host"
        )
    spool = _spool(settings.journal, host)
    log.setup("bccnd-recorder")
    options = Options(
        bus=path,
        journal=_absolute(settings.journal),
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
        recorder.on_status = _Lines()
    whole = recorder.run()
    manager.close()
    if recorder.failed is not None:
        raise JournalError(recorder.failed.reason, recorder.failed.detail, _remedy(recorder.failed.reason))
    if not whole:
        tell(f"not everything is in the journal; the rest is in {options.spool}, for the next start")
    return whole


def _remedy(reason: str) -> str:
    if reason == "not_permitted":
        allowed = "have it allowed in the daemon's configuration (access: [{user: NAME, tap: true}])"
        return f"be root or in the daemon's group, or {allowed}"
    return "name the socket of a bccnd with --socket, and see 'bccn clients'"


def _spool(journal: str, host: str) -> str:
    """Where the log is: beside a journal on this machine's own disks. Raises JournalError: bad_journal, no_journal."""
    root = _folder(journal)
    if root is None:
        return f"{SPOOL}/{host}"
    try:
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        remedy = "choose another place with --journal, or make this one writable for this user"
        raise JournalError("no_journal", f"cannot write to {root}: {error.strerror}", remedy) from error
    return f"{root}/.spool/{host}"


def _folder(journal: str) -> str | None:
    """The folder that a journal is, if it is one of this machine. Raises JournalError: bad_journal."""
    if "://" not in journal:
        return os.path.abspath(journal)
    import pyarrow as pa  # it knows what can be opened, and takes its time to load
    from pyarrow.fs import LocalFileSystem

    from bccnd.journal.files import open_root

    try:
        filesystem, root = open_root(journal)
    except (pa.ArrowException, ValueError) as error:
        remedy = "write the path of a folder, or a URI that pyarrow.fs can open, like s3://bucket/journal"
        detail = f"{journal} names no journal: {str(error).splitlines()[0]}"
        raise JournalError("bad_journal", detail, remedy) from error
    except OSError:
        return None  # it may be there later
    return root if isinstance(filesystem, LocalFileSystem) else None


def _absolute(journal: str) -> str:
    return journal if "://" in journal else os.path.abspath(journal)


class _Lines:
    """A line about how it goes, now and then; a terminal that takes nothing is not waited for."""

    def __init__(self) -> None:
        self._due = 0.0

    def __call__(self, text: str) -> None:
        from bccnd.net import log

        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY
            log.logger.info("%s", text)
