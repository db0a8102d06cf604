"""Names of the folders and files of a journal, and how to read them.

``obs/host=<host>/day=<YYYY-MM-DD>/<journal_id>-<first rec_no>.parquet`` holds the records of one journal and day from
that number on, without a hole. ``sessions/host=<host>/<journal_id>.parquet`` says when that journal was listening.
Other names are not of the journal.
"""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

OBS: Final = "obs"
SESSIONS: Final = "sessions"
#: prefix of a file's name until it is complete: readers of Parquet folders ignore such names
UNFINISHED: Final = "."
#: prefix of a recorded payload of which only the hash was kept, before 32 bytes
HASHED: Final = b"sha256:"
_FILE: Final = re.compile(r"([^/]+)-([0-9]{1,18})\.parquet")
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SESSIONS: Final = re.compile(r"sessions/host=([^/]+)/[^/]+\.parquet")
_PATH: Final = re.compile(r"obs/host=([^/]+)/day=([0-9]{4}-[0-9]{2}-[0-9]{2})/([^/]+)")

MICROSECONDS: Final = 1_000_000
#: microseconds in a day
DAY: Final = 86_400 * MICROSECONDS
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()


class ObsFile(NamedTuple):
    """The name of a file with records, in its parts. ``day`` is that of all its records, in UTC."""

    host: str
    day: str
    journal_id: str
    first: int

    @property
    def journal(self) -> tuple[str, str]:
        """The journal, by the host that has written it and its name."""
        return self.host, self.journal_id

    @property
    def path(self) -> str:
        return f"{OBS}/host={self.host}/day={self.day}/{self.journal_id}-{self.first:012d}.parquet"


def is_host(name: str) -> bool:
    """Whether a name can be a host's in names of folders."""
    return bool(_HOST.fullmatch(name)) and name not in (".", "..")


def journal_id(now: int, random: int) -> str:
    """Return the name of a journal that begins at ``now`` (microseconds since 1970). Names sort by that time;
    ``random`` is any number of 32 bits."""
    seconds, microseconds = divmod(now, MICROSECONDS)
    when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{when:%Y%m%dT%H%M%S}.{microseconds:06}Z-{random & 0xFFFFFFFF:08x}"


def day_of(ts: int) -> str:
    """Return the day, in UTC, of a time in microseconds since 1970."""
    return datetime.date.fromordinal(_EPOCH + ts // DAY).isoformat()


def start_of(day: str) -> int:
    """Return the midnight with which a day begins, in microseconds since 1970."""
    return (datetime.date.fromisoformat(day).toordinal() - _EPOCH) * DAY


def sessions_path(host: str, journal: str) -> str:
    return f"{SESSIONS}/host={host}/{journal}.parquet"


def host_of_sessions(path: str) -> str | None:
    """Return the host of a file of sessions from its path below the journal; None for other paths."""
    match = _SESSIONS.fullmatch(path)
    return match[1] if match else None


def read_path(path: str) -> ObsFile | None:
    """Parse a path below the journal; None if it is not one of a file with records."""
    match = _PATH.fullmatch(path)
    name = _FILE.fullmatch(match[3]) if match and not match[3].startswith(UNFINISHED) else None
    if match is None or name is None or not is_host(match[1]):
        return None
    return ObsFile(match[1], match[2], name[1], int(name[2]))
