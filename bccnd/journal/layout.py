"""Where a journal keeps what: names of folders and files, and back.

Law: everything that a name says can be read from the name alone, and a name that was not made here is nobody's file.
``obs/host=<host>/day=<YYYY-MM-DD>/<journal_id>-<first rec_no>.parquet`` holds the records of one journal from that
number on, without a hole; ``sessions/host=<host>/<journal_id>.parquet`` when that journal was listening.
"""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

OBS: Final = "obs"
SESSIONS: Final = "sessions"
#: how a file is called until it is whole: readers of Parquet folders leave such names alone
UNFINISHED: Final = "."
_FILE: Final = re.compile(r"([^/]+)-([0-9]{1,18})\.parquet")
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SESSIONS: Final = re.compile(r"sessions/host=([^/]+)/[^/]+\.parquet")
_PATH: Final = re.compile(r"obs/host=([^/]+)/day=([0-9]{4}-[0-9]{2}-[0-9]{2})/([^/]+)")

MICROSECONDS: Final = 1_000_000
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()


class ObsFile(NamedTuple):
    """What the name of a file with records says. ``day`` is that of all its records, in UTC."""

    host: str
    day: str
    journal_id: str
    first: int

    @property
    def path(self) -> str:
        return f"{OBS}/host={self.host}/day={self.day}/{self.journal_id}-{self.first:012d}.parquet"


def is_host(name: str) -> bool:
    """Whether a name can stand for a host in names of folders."""
    return bool(_HOST.fullmatch(name)) and name not in (".", "..")


def journal_id(now: int, random: int) -> str:
    """The name of a journal that begins now (microseconds since 1970); names sort by when they began. ``random`` is
    any number of 32 bits."""
    seconds, microseconds = divmod(now, MICROSECONDS)
    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{when:%Y%m%dT%H%M%S}.{microseconds:06}Z-{random & 0xFFFFFFFF:08x}"


def day_of(ts: int) -> str:
    """The day, in UTC, of a time in microseconds since 1970."""
    return datetime.date.fromordinal(_EPOCH + ts // (86_400 * MICROSECONDS)).isoformat()


def sessions_path(host: str, journal: str) -> str:
    return f"{SESSIONS}/host={host}/{journal}.parquet"


def host_of_sessions(path: str) -> str | None:
    """The host that a path below the journal names, or None for one that is no file of sessions."""
    found = _SESSIONS.fullmatch(path)
    return found[1] if found else None


def read_path(path: str) -> ObsFile | None:
    """What a path below the journal says, or None for one that is no file with records."""
    found = _PATH.fullmatch(path)
    name = _FILE.fullmatch(found[3]) if found and not found[3].startswith(UNFINISHED) else None
    if found is None or name is None or not is_host(found[1]):
        return None
    return ObsFile(found[1], found[2], name[1], int(name[2]))
