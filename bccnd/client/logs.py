"""What the clients log, as `bccnd.client` of Python's logging: absences of the daemon, gaps and refusals."""

from __future__ import annotations

import sys
from typing import Final

from bccnd.client.event_queues import Away, Event, Gap, Reconnected, Refusal

NAME: Final = "bccnd.client"


def log_event(daemon: str, event: Event) -> None:
    """Log an event; not in programs that have not loaded Python's logging, which takes a while to load."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger(NAME)
    if not logger.hasHandlers():  # what nobody has set up prints nothing
        return
    match event:
        case Away(reason=reason):
            logger.warning("the connection to %s was lost: %s", daemon, reason)
        case Reconnected(seconds=seconds):
            logger.info("%s is back after %.1f s", daemon, seconds)
        case Gap(lost=0):
            logger.warning("%s was killed or has crashed; an unknown number of messages is missing", daemon)
        case Gap(lost=lost):
            logger.warning("%s dropped %d messages for this program, which reads too slowly", daemon, lost)
        case Refusal(reason=reason, key=key):
            logger.warning("%s refused %r: %s", daemon, key, reason)
