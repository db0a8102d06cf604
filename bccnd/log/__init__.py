"""Logs events, with fields for systemd's journal.

A message names the thing, what happened, its effect and the remedy; a drop is named as in the metrics. Events that can
happen once per datagram or client carry ``about``, and `repeat_filter` limits them. Without `setup` the package logs to
whatever handlers the importing program has.
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
#: limits the records that carry ``about``
repeats: Final = RepeatFilter()
for _part in {event.part for event in EVENTS.values()}:
    logger.getChild(_part).addFilter(repeats)


def event(
    name: str, text: str, /, *, about: Hashable = None, remedy: str = "", trace: bool = False, **fields: Value
) -> None:
    """Log an event of `events.EVENTS`; repeated ones ``about`` the same thing are limited.

    ``trace`` adds the traceback of the exception being handled. The journal gets each field as BCCND_<NAME>.
    """
    known = EVENTS[name]
    drop = str(fields.get("drop", ""))
    if drop and f"({drop})" not in text:
        text = f"{text} ({drop})"
    extra = {"event": name, "about": about, "remedy": remedy, "fields": fields}
    logger.getChild(known.part).log(known.level, "%s", text, exc_info=trace, extra=extra)


def bug(text: str, /, **fields: Value) -> None:
    """Log the exception being handled as a bug in this program; repeats are limited by its place in the code."""
    error = sys.exception()
    trace = error.__traceback__ if error is not None else None
    place: Hashable = "unknown"
    while trace is not None:
        place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    remedy = "report it with the lines that follow"
    event("internal_error", text, about=place, remedy=remedy, trace=True, **fields)


class _Peer(Protocol):
    @property
    def pid(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def program(self) -> bytes: ...


class PeerFields(TypedDict):
    """The fields that describe a local program."""

    uid: int
    pid: int
    program: bytes
    identity: NotRequired[bytes]


def peer_fields(peer: _Peer, identity: bytes = b"") -> PeerFields:
    """Return the fields that describe a local program."""
    fields = PeerFields(uid=peer.uid, pid=peer.pid, program=peer.program)
    if identity:
        fields["identity"] = identity
    return fields


def lines_dropped() -> dict[str, int]:
    """Return the numbers of lines missing in the log of this process, by reason."""
    return {**lines_lost, "lines_left_out": repeats.left_out}


def keep_recent() -> RecentLines:
    """Keep the last lines in memory from now on, until `RecentLines.close`."""
    recent = RecentLines()
    logger.addHandler(recent)
    return recent


def setup(program: str = "bccnd", *, stderr: int = 2) -> None:
    """Write the log to systemd's journal if the descriptor ``stderr`` leads there, else to ``stderr`` itself."""
    handler: logging.Handler
    failure = ""
    try:
        handler = JournalHandler(program) if is_journal(stderr) else stream_handler(program, stderr)
    except OSError as error:
        failure = f"cannot reach the journal: {error}; the log has plain lines without fields"
        handler = stream_handler(program, stderr, prefixed=True)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if failure:
        logger.warning("%s", failure)


def wait_until_read(timeout: float = 1.0) -> None:
    """Wait until the journal has read the last lines: it cannot attribute lines of a process that has exited."""
    for handler in logger.handlers:
        if isinstance(handler, JournalHandler):
            handler.wait_until_read(timeout)
