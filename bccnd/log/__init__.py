"""Logs events by the logger of their part (`bccnd.bus`, `bccnd.segment`, ...), with fields for the journal.

A message names the thing, what happened, its effect and the remedy; where something was dropped, by the name that the
metrics have for it. What can happen once per datagram or client carries ``about``, and `repeat_filter` limits it.
Imported as a library, the package has no handler; a program calls `setup`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Hashable
from typing import Final, NotRequired, Protocol, TypedDict

from bccnd.log.events import EVENTS
from bccnd.log.handlers import JournalHandler, RecentLines, Value, is_journal, lines_lost, stream_handler
from bccnd.log.repeat_filter import RepeatFilter

logger = logging.getLogger("bccnd")
#: limits what carries ``about``, of all parts
repeats: Final = RepeatFilter()
for _part in {event.part for event in EVENTS.values()}:
    logger.getChild(_part).addFilter(repeats)


def event(
    name: str, text: str, /, *, about: Hashable = None, remedy: str = "", trace: bool = False, **fields: Value
) -> None:
    """Log an event, one of `log_events.EVENTS`, within the limits of `repeats` if it is ``about`` something.

    ``remedy`` is what can be done about it; ``trace`` adds the exception that is being handled. The journal gets each
    field as BCCND_<NAME>.
    """
    known = EVENTS[name]
    drop = str(fields.get("drop", ""))
    if drop and f"({drop})" not in text:
        text = f"{text} ({drop})"
    extra = {"event": name, "about": about, "remedy": remedy, "fields": fields}
    logger.getChild(known.part).log(known.level, "%s", text, exc_info=trace, extra=extra)


def bug(text: str, /, **fields: Value) -> None:
    """Log the exception that is being handled as a fault of this program; each place in the code is one thing."""
    error = sys.exception()
    trace = error.__traceback__ if error is not None else None
    place: Hashable = "unknown"
    while trace is not None:
        place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    remedy = "report it, with the lines that follow here"
    event("internal_error", f"{text}; please report it", about=place, remedy=remedy, trace=True, **fields)


class _Peer(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def program(self) -> bytes: ...


class PeerFields(TypedDict):
    """The fields that describe a program of this host."""

    uid: int
    pid: int
    program: bytes
    identity: NotRequired[bytes]


def peer_fields(peer: _Peer, identity: bytes = b"") -> PeerFields:
    """Describe a program; by its ``identity`` too once it has one."""
    fields = PeerFields(uid=peer.uid, pid=peer.pid, program=peer.program)
    if identity:
        fields["identity"] = identity
    return fields


def lines_dropped() -> dict[str, int]:
    """Return the lines of this process that are missing in its log, by reason."""
    return {**lines_lost, "lines_left_out": repeats.left_out}


def keep_recent() -> RecentLines:
    """From now on keep the last lines in memory, until `RecentLines.close`."""
    recent = RecentLines()
    logger.addHandler(recent)
    return recent


def setup(program: str = "bccnd", *, stderr: int = 2) -> None:
    """Send the log of this process to the journal if the descriptor ``stderr`` leads there, else to ``stderr``."""
    handler: logging.Handler
    trouble = ""
    try:
        handler = JournalHandler(program) if is_journal(stderr) else stream_handler(program, stderr)
    except (ImportError, OSError) as error:
        trouble = f"cannot reach the journal: {error}; it gets this log as plain lines"
        handler = stream_handler(program, stderr, prefixed=True)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if trouble:
        logger.warning("%s", trouble)


def flush() -> None:
    """Send what other threads have logged; for the loop of a program that has some."""
    for handler in logger.handlers:
        handler.flush()


def settle(patience: float = 1.0) -> None:
    """Wait until the last lines were read, so that the journal can attribute them to a process that is about to end."""
    for handler in logger.handlers:
        if isinstance(handler, JournalHandler):
            handler.settle(patience)


class Limited:
    """The gateways' way into this log."""

    def say(
        self, thing: Hashable, name: str, text: str, /, *, remedy: str = "", trace: bool = False, **fields: Value
    ) -> None:
        event(name, text, about=thing, remedy=remedy, trace=trace, **fields)

    def bug(self, text: str, /, **fields: Value) -> None:
        bug(text, **fields)

    def grown(self, thing: Hashable, count: int) -> int:
        return repeats.growth(thing, count)
