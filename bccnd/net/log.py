"""What the daemon says: one line each, on standard error, readable on a terminal and in the journal.

Law: what can happen once per datagram or per client is said once, then counted, and the count is said at most
once a minute. A message says what happened and what to do about it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Hashable
from typing import Final

#: seconds between two lines about the same thing
QUIET: Final = 60.0
#: things remembered; more than the daemon has to say, so that this cap only bounds a mistake
MAX_THINGS: Final = 4096

logger = logging.getLogger("bccnd")


class _Format(logging.Formatter):
    """With a level prefix for the journal (sd-daemon(3)), with the time and the program's name for people."""

    _PREFIX: Final = {logging.DEBUG: "<7>", logging.INFO: "<6>", logging.WARNING: "<4>", logging.ERROR: "<3>"}

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).replace("\n", "\n  ")
        if "JOURNAL_STREAM" in os.environ:
            return self._PREFIX.get(record.levelno, "<6>") + text.replace("\n", " ")
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{stamp} {self._program} {record.levelname.lower()}: {text}"


def setup(program: str = "bccnd") -> None:
    """Send the log of a daemon to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Format(program))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class Limited:
    """Says a thing at once, and then at most once every `QUIET` seconds with the number of times since."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def warn(self, thing: Hashable, message: str | Callable[[], str]) -> None:
        """``thing`` identifies what this is about: an event and who caused it. A ``message`` that takes long to make
        is made only where it is said."""
        now = time.monotonic()
        since, held_back = self._seen.get(thing, (-QUIET, 0))
        if now - since < QUIET:
            self._seen[thing] = (since, held_back + 1)
            return
        if len(self._seen) >= MAX_THINGS:
            self._seen.clear()
        self._seen[thing] = (now, 0)
        text = message if isinstance(message, str) else message()
        logger.warning("%s%s", text, f" ({held_back} more times in the meantime)" if held_back else "")
