"""What a log says of the sessions of its journal.

Invariant: a session begins when the subscription was in force and ends at a time up to which all that the daemon had
was in the log. Each log lists all earlier sessions of its journal, so that any log alone says when the recorder was
listening.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from bccnd.errors import JournalError
from bccnd.journal.sessions import RecorderSession

#: sessions of one journal; then another journal begins, or the logs of a full disk would grow without end
MAX_SESSIONS: Final = 500

_ALIVE: Final = struct.Struct("<qq")


@dataclass
class Head:
    """The first record of a log, as JSON. Its last session is the current one; ``form`` is the version of this
    record."""

    host: str
    journal: str
    first: int
    version: str
    sessions: list[RecorderSession] = field(default_factory=list)
    form: Literal[2] = 2

    def pack(self) -> bytes:
        return _HEAD.dump_json(self)


_HEAD: Final = TypeAdapter(Head)


def read_head(data: bytes) -> Head:
    """Raises JournalError: bad_log."""
    try:
        return _HEAD.validate_json(data, strict=True)
    except ValidationError as error:
        raise bad_log() from error


def bad_log() -> JournalError:
    remedy = "it was written by another version, or is no log at all: look at it, or remove it"
    return JournalError("bad_log", "a log whose beginning cannot be read", remedy)


def without_removed(sessions: list[RecorderSession], written: list[RecorderSession]) -> list[RecorderSession]:
    """Return sessions without what retention has removed of them from those written before."""
    floor, start = (written[0].first, written[0].start) if written else (0, 0)
    kept = []
    for session in sessions:
        if session.first >= floor:
            kept.append(session)
        elif session.last >= floor - 1:
            kept.append(replace(session, first=floor, start=max(session.start, start)))
    return kept


def pack_alive(until: int, drops: int) -> bytes:
    return _ALIVE.pack(until, drops)


def read_alive(data: bytes) -> tuple[int, int]:
    """Raises ValueError."""
    try:
        until, drops = _ALIVE.unpack(data)
    except struct.error as bad:
        raise ValueError("no record of being alive") from bad
    return until, drops
