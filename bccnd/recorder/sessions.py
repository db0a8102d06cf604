"""Sessions of a recorder: when it was listening without a break, and what is missing within.

Invariant: a session never claims too much: it begins when the subscription was in force and ends at a time up to which
all that the daemon had was in the log. Each log lists all earlier sessions of its journal, so that any log alone says
when the recorder was listening.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from bccnd.core.formats.strict_json import parse_json
from bccnd.errors import JournalError

#: the version of the first record of a log
_FORM: Final = 1
#: sessions of one journal; then another journal begins, or the logs of a full disk would grow without end
MAX_SESSIONS: Final = 500

_ALIVE: Final = struct.Struct("<qq")


#: why a session began: the recorder connected; the disk had room again; this host woke up; its clock had been set; or
#: that is not known
Cause = Literal["start", "resumed", "suspend", "clock", ""]


@dataclass
class Session:
    """Times in microseconds since 1970."""

    start: int
    end: int
    socket_drops: int = 0
    tap_gaps: int = 0
    cause: Cause = ""

    def extend(self, until: int, drops: int) -> None:
        """Note that all that came up to ``until`` is logged, and what the kernel has dropped since the start."""
        self.end = max(self.end, until)
        self.socket_drops = max(self.socket_drops, drops)


@dataclass
class Head:
    """The first record of a log. Its last session is the current one."""

    host: str
    journal: str
    first: int
    version: str
    sessions: list[Session] = field(default_factory=list)

    def pack(self) -> bytes:
        sessions = [[session.start, session.end, session.socket_drops, session.tap_gaps] for session in self.sessions]
        head = {"form": _FORM, "host": self.host, "journal": self.journal, "first": self.first}
        causes = [session.cause for session in self.sessions]
        return json.dumps({**head, "version": self.version, "stretches": sessions, "causes": causes}).encode()


def read_head(data: bytes) -> Head:
    """Raises JournalError: bad_log."""
    try:
        head: dict[str, Any] = parse_json(data)
        if head["form"] != _FORM:
            raise ValueError("form")
        sessions = [
            Session(int(start), int(end), int(drops), int(gaps), cause)
            for (start, end, drops, gaps), cause in zip(head["stretches"], head["causes"], strict=True)
        ]
        return Head(str(head["host"]), str(head["journal"]), int(head["first"]), str(head["version"]), sessions)
    except (ValueError, TypeError, KeyError) as bad:
        remedy = "it was written by another version, or is no log at all: look at it, or remove it"
        raise JournalError("bad_log", "a log whose beginning cannot be read", remedy) from bad


def clip_sessions(sessions: list[Session], floor: int) -> list[Session]:
    """Return what sessions claim from a time on."""
    return [
        session if session.start >= floor else replace(session, start=floor)
        for session in sessions
        if session.start >= floor or session.end > floor
    ]


def pack_alive(until: int, drops: int) -> bytes:
    return _ALIVE.pack(until, drops)


def read_alive(data: bytes) -> tuple[int, int]:
    """Raises ValueError."""
    try:
        until, drops = _ALIVE.unpack(data)
    except struct.error as bad:
        raise ValueError("no record of being alive") from bad
    return until, drops
