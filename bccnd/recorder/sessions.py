"""What a log says of the sessions of its journal.

Invariant: a session begins when the subscription was in force and ends at a time up to which all that the daemon had
was in the log. Each log lists all earlier sessions of its journal, so that any log alone says when the recorder was
listening.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bccnd.core.formats.strict_json import parse_json
from bccnd.errors import JournalError
from bccnd.journal.sessions import RecorderSession

#: the version of the first record of a log
_FORM: Final = 1
#: sessions of one journal; then another journal begins, or the logs of a full disk would grow without end
MAX_SESSIONS: Final = 500

_ALIVE: Final = struct.Struct("<qq")


@dataclass
class Head:
    """The first record of a log. Its last session is the current one."""

    host: str
    journal: str
    first: int
    version: str
    sessions: list[RecorderSession] = field(default_factory=list)

    def pack(self) -> bytes:
        sessions = [[session.start, session.end, session.socket_drops, session.tap_gaps] for session in self.sessions]
        head = {"form": _FORM, "host": self.host, "journal": self.journal, "first": self.first}
        causes = [session.cause for session in self.sessions]
        numbers = [[session.first, session.last] for session in self.sessions]
        more = {"version": self.version, "stretches": sessions, "causes": causes, "numbers": numbers}
        return json.dumps(head | more).encode()


def read_head(data: bytes) -> Head:
    """Raises JournalError: bad_log."""
    try:
        head: dict[str, Any] = parse_json(data)
        if head["form"] != _FORM:
            raise ValueError("form")
        numbers = head.get("numbers", [(None, None)] * len(head["causes"]))  # versions up to 1.1 wrote none
        sessions = [
            RecorderSession(int(start), int(end), int(drops), int(gaps), _number(first), _number(last), cause)
            for (start, end, drops, gaps), (first, last), cause in zip(
                head["stretches"], numbers, head["causes"], strict=True
            )
        ]
        return Head(str(head["host"]), str(head["journal"]), int(head["first"]), str(head["version"]), sessions)
    except (ValueError, TypeError, KeyError) as error:
        raise bad_log() from error


def bad_log() -> JournalError:
    remedy = "it was written by another version, or is no log at all: look at it, or remove it"
    return JournalError("bad_log", "a log whose beginning cannot be read", remedy)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def without_removed(sessions: list[RecorderSession], written: list[RecorderSession]) -> list[RecorderSession]:
    """Return sessions without what retention has removed of them from those written before."""
    floor, start = (written[0].first or 0, written[0].start) if written else (0, 0)
    kept = []
    for session in sessions:
        if session.first is None or session.first >= floor:
            kept.append(session)
        elif session.last is not None and session.last >= floor - 1:
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
