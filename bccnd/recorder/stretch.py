"""When we were listening: stretches without a break, and what is known to be missing within them.

Law: a stretch never claims more than is so: it begins when the subscription was in force, and its end is a time up to
which everything that the daemon had was in the log. Each log says of all stretches of its journal before it, so that
any log alone tells when that journal was listening.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final

from bccnd.errors import JournalError

#: what the first record of a log says about its own form
_FORM: Final = 1
#: stretches of one journal; then another one begins, or the logs of a disk that is always full would grow without end
MAX_STRETCHES: Final = 500

_ALIVE: Final = struct.Struct("<qq")


@dataclass
class Stretch:
    """Times in microseconds since 1970."""

    start: int
    end: int
    socket_drops: int = 0
    tap_gaps: int = 0

    def lives(self, until: int, drops: int) -> None:
        """All that came up to ``until`` is there; the kernel has dropped so many since the start."""
        self.end = max(self.end, until)
        self.socket_drops = max(self.socket_drops, drops)


@dataclass
class Head:
    """The first record of a log. The last stretch is the one that it goes on with."""

    host: str
    journal: str
    first: int
    version: str
    stretches: list[Stretch] = field(default_factory=list)

    def pack(self) -> bytes:
        stretches = [[one.start, one.end, one.socket_drops, one.tap_gaps] for one in self.stretches]
        said = {"form": _FORM, "host": self.host, "journal": self.journal, "first": self.first}
        return json.dumps({**said, "version": self.version, "stretches": stretches}).encode()


def read_head(data: bytes) -> Head:
    """Raises JournalError: bad_log."""
    try:
        said: dict[str, Any] = json.loads(data)
        if said["form"] != _FORM:
            raise ValueError("form")
        stretches = [Stretch(*map(int, one)) for one in said["stretches"]]
        return Head(str(said["host"]), str(said["journal"]), int(said["first"]), str(said["version"]), stretches)
    except (ValueError, TypeError, KeyError) as bad:
        remedy = "it was written by another version, or is no log at all: look at it, or remove it"
        raise JournalError("bad_log", "a log whose beginning cannot be read", remedy) from bad


def pack_alive(until: int, drops: int) -> bytes:
    return _ALIVE.pack(until, drops)


def read_alive(data: bytes) -> tuple[int, int]:
    """Raises ValueError."""
    try:
        until, drops = _ALIVE.unpack(data)
    except struct.error as bad:
        raise ValueError("no sign of life") from bad
    return until, drops
