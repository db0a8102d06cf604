"""The spool: logs that are not yet in the journal.

Invariant: one recorder per folder. A log is removed only when all of it is in the journal; one that cannot be read is
set aside under another name and stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from typing import Final

from bccnd.errors import JournalError
from bccnd.recorder.logfile import LogWriter

_LOG: Final = re.compile(r"[^/]+-[0-9]{8,18}\.log")
#: bad logs that are kept; more would not be looked at either
MAX_BAD: Final = 16


class Spool:
    """Raises JournalError: spool_in_use, no_spool."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        #: bad files that were removed, as there are newer ones
        self.removed = 0
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            detail = f"cannot keep records in {folder}: {error.strerror}"
            raise JournalError(
                "no_spool", detail, "make it writable for this user, or choose another with --spool"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise JournalError(
                "spool_in_use",
                f"another recorder writes to {folder}",
                "let one recorder do for this host, or give each a journal or a --spool of its own",
            ) from error

    def leftovers(self) -> list[str]:
        """The logs that there are, oldest first."""
        return sorted(f"{self.folder}/{name}" for name in os.listdir(self.folder) if _LOG.fullmatch(name))

    def begin(self, journal: str, number: int) -> LogWriter:
        """A new log of a journal, which has had so many before. Raises OSError."""
        return LogWriter(f"{self.folder}/{journal}-{number:08d}.log")

    def set_aside(self, path: str) -> str:
        """Put a bad log out of the way; where it is now. Raises OSError."""
        place = f"{path}.bad"
        os.replace(path, place)
        bad = sorted(name for name in os.listdir(self.folder) if name.endswith(".log.bad"))
        for name in bad[:-MAX_BAD]:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.folder}/{name}")
                self.removed += 1
        return place

    def close(self) -> None:
        os.close(self._lock)
