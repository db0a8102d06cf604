"""Stores ids and their subscriptions in an SQLite database, so that they survive restarts and kills.

A thread writes the changed ids, in one transaction for all changes of some tenths of a second, so that no disk stalls
the event loop. As only the thread waits for it, SQLite's defaults are kept (rollback journal, synchronous=FULL): what
is stored survives a power loss, and is in one file.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import Final

from bccnd import log
from bccnd.core.formats.strict_json import parse_json
from bccnd.gateways.broker.sessions import Record, Sessions

_SCHEMA: Final = """
PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS ids (id BLOB PRIMARY KEY, seen REAL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (
    id BLOB REFERENCES ids ON DELETE CASCADE, topic BLOB, PRIMARY KEY (id, topic)
) STRICT, WITHOUT ROWID;
"""
#: seconds from a change to its transaction at least, the share of time for writing, seconds until a failure is retried
_DELAY: Final = 0.2
_SHARE: Final = 0.05
_RETRY: Final = 60.0
_SYSTEM: Final = "/var/lib/bccnd"


class SessionStore:
    """Stores the changes of ``sessions`` in the database at ``path``."""

    def __init__(self, path: str, sessions: Sessions) -> None:
        self._path = path
        self._sessions = sessions
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        sessions.on_change = self._changed.set

    def load(self) -> str:
        """Restore what is stored; if that cannot be read, set it aside and return why."""
        try:
            self._sessions.restore(load(self._path), time.time())
        except (OSError, sqlite3.OperationalError) as error:  # not permitted, locked: nothing shows that it is damaged
            return f"{self._path} cannot be read: {error}"
        except (ValueError, sqlite3.Error) as error:
            return f"{self._path} cannot be read: {error}; {_set_aside(self._path)}"
        return ""

    async def close(self) -> None:
        """Store what is not stored yet."""
        await self._write()

    async def write_changes(self) -> None:
        """Store changes soon after they are made, until cancelled."""
        delay = _DELAY
        while await self._changed.wait():
            await asyncio.sleep(delay)
            began = time.monotonic()
            # Closing the store does not cancel a transaction that runs, but waits for it.
            stored = await asyncio.shield(self._write())
            delay = max(_DELAY, (time.monotonic() - began) / _SHARE) if stored else _RETRY

    async def _write(self) -> bool:
        async with self._writing:
            self._changed.clear()
            names, self._sessions.changed = self._sessions.changed, set()
            try:
                await asyncio.to_thread(save, self._path, [self._sessions.record(name) for name in names])
            except (OSError, sqlite3.Error, RuntimeError) as error:  # RuntimeError: no thread can be started
                self._sessions.changed |= names
                self._changed.set()
                text = f"subscriptions cannot be written to {self._path}: {error}"
                remedy = "make its folder writable, or name another file in gateways.broker.state"
                log.event("state_not_written", text, about=self._path, remedy=remedy, error=str(error))
                return False
        return True


def save(path: str, records: Iterable[Record]) -> None:
    """Store records in one transaction. Raises OSError, sqlite3.Error."""
    os.makedirs(os.path.dirname(path) or ".", 0o750, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_SCHEMA)
        for name, seen, topics in records:
            database.execute("DELETE FROM ids WHERE id = ?", (name,))
            if topics:
                database.execute("INSERT INTO ids VALUES (?, ?)", (name, seen))
                rows = [(name, topic) for topic in topics]
                database.executemany("INSERT OR IGNORE INTO subscriptions VALUES (?, ?)", rows)


def load(path: str) -> list[Record]:
    """Return all records; a file of the former format is converted first.

    Raises OSError, ValueError, sqlite3.Error.
    """
    former = _former(path)
    if former:
        with open(former, "rb") as file:
            records = parse_former(file.read())
        with suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        save(f"{path}.new", records)
        os.replace(f"{path}.new", path)
        if former != path:
            os.unlink(former)
    if not os.path.exists(path):
        return []
    topics: dict[bytes, list[bytes]] = {}
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_SCHEMA)
        for name, topic in database.execute("SELECT id, topic FROM subscriptions"):
            topics.setdefault(name, []).append(topic)
        rows = database.execute("SELECT id, seen FROM ids").fetchall()
    for name, seen in rows:
        if {type(name), *map(type, topics.get(name, ()))} != {bytes} or not isinstance(seen, float | None):
            raise ValueError("values have wrong types")
    return [Record(name, seen, tuple(topics.get(name, ()))) for name, seen in rows]


def _former(path: str) -> str:
    """Return the JSON file to convert; empty if there is none."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            return path if file.read(1) == b"{" else ""
    beside = f"{os.path.splitext(path)[0]}.json"
    return beside if os.path.exists(beside) else ""


def parse_former(text: bytes) -> list[Record]:
    """Read a file of the former format, which has a character for each byte. Raises ValueError."""
    try:
        state = parse_json(text)
        if state["format"] != "bccnd-broker-1":
            raise ValueError("its format is unknown")
        return [
            Record(
                one["id"].encode("latin-1"),
                float(one["seen"]),
                tuple(topic.encode("latin-1") for topic in one["topics"]),
            )
            for one in state["ids"]
        ]
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"its structure is wrong ({error!r})") from error


def default_path(tcp: tuple[str, int], environment: Mapping[str, str]) -> str:
    """Return the file for this address in the folder of the service, of the system or of the user."""
    folder = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    if not folder:
        with suppress(OSError):
            os.makedirs(_SYSTEM, 0o750, exist_ok=True)
        own = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        folder = _SYSTEM if os.access(_SYSTEM, os.W_OK | os.X_OK) else os.path.join(own, "bccnd")
    return os.path.join(folder, f"broker-{tcp[0].replace(':', '_')}-{tcp[1]}.db")


def _set_aside(path: str) -> str:
    """Rename a damaged file, with SQLite's journal of it; return what became of it."""
    path = path if os.path.exists(path) else _former(path)
    try:
        os.replace(path, f"{path}.damaged")
        with suppress(FileNotFoundError):
            os.replace(f"{path}-journal", f"{path}.damaged-journal")
    except OSError as error:
        return f"it cannot be set aside: {error.strerror}"
    return f"it is kept as {path}.damaged"
