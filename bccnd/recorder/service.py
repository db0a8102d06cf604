"""Runs the recorder: its log, the service manager, its metrics, and where records wait."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from bccnd import log
from bccnd.config import RecorderSettings
from bccnd.core.formats.uri import check_folder, is_uri
from bccnd.errors import JournalError
from bccnd.journal import file_names
from bccnd.net.loop import Loop
from bccnd.net.service_manager import ServiceManager
from bccnd.recorder.recorder import Recorder

#: where records wait for a journal that is on another machine
SPOOL: Final = "/var/lib/bccnd/spool"
#: seconds between two lines of status on a terminal
_EVERY: Final = 10.0
_DENIED: Final = (
    "be root or in the daemon's group, or have it allowed in the daemon's configuration "
    "(access: [{user: NAME, tap: true}])"
)
_UNREACHABLE: Final = "name the socket of a bccnd with --socket, and see 'bccn clients'"


def record(bus: str, settings: RecorderSettings, host: str, names: Sequence[str]) -> str:
    """Record from the bus at this path until a signal, as ``host``; ``names`` are those of hosts that the metrics are
    served to. Returns the folder of records that are not in the journal, empty if all are. Raises JournalError."""
    if not file_names.is_host(host):
        raise JournalError(
            "bad_host", f"{host!r} cannot be part of a path in the journal", "give it a name with --host"
        )
    beside = _find_spool(settings.journal, host)
    spool = settings.spool or beside
    log.setup("bccnd-recorder")
    if not is_uri(settings.journal):
        settings = settings.model_copy(update={"journal": os.path.abspath(settings.journal)})
    loop = Loop()
    manager = ServiceManager.from_environment()
    recorder = Recorder(bus, settings, host, spool, loop, manager)
    if settings.metrics.listen is not None:
        from bccnd.recorder.metrics import serve

        serve(recorder, loop, settings.metrics.listen, names)
    if sys.stderr.isatty():
        recorder.on_status = _StatusLines()
    whole = recorder.run()
    manager.close()
    if recorder.failed is not None:
        denied = recorder.failed.reason == "not_permitted"
        raise JournalError(recorder.failed.reason, recorder.failed.detail, _DENIED if denied else _UNREACHABLE)
    return "" if whole else spool


def _find_spool(journal: str, host: str) -> str:
    """Where records wait: beside a journal on this host's own disks. Raises JournalError: bad_journal, no_journal."""
    try:
        check_folder(journal)
    except OSError as error:
        detail = f"{journal} names no journal: {error.strerror}"
        raise JournalError("bad_journal", detail, "choose another place with --journal") from error
    root: str | None = os.path.abspath(journal)
    if is_uri(journal):
        import pyarrow as pa  # it takes its time to load, and memory
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
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY
            log.logger.info("%s", text)
