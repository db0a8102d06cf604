"""Stores ids and their subscriptions in an SQLite database, so that they survive restarts and kills.

A thread writes the changed ids, in one transaction for all changes of some tenths of a second, so that no disk stalls
the event loop. As only the thread waits for it, SQLite's defaults are kept (rollback journal, synchronous=FULL): what
is stored survives a power loss, and is in one file.

``ids.seen`` is when an id left, by the clock of the boot that ``clock`` names; ``clock.now`` is that clock when it was
last stored. After a reboot an id is as old as it was then: the time without this host does not count.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import Final

from bccnd import boot_clock, log
from bccnd.gateways.broker.sessions import Record, Sessions

_SCHEMA: Final = """
PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS ids (id BLOB PRIMARY KEY, seen REAL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (
    id BLOB REFERENCES ids ON DELETE CASCADE, topic BLOB, PRIMARY KEY (id, topic)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock (boot TEXT PRIMARY KEY, now REAL) STRICT, WITHOUT ROWID;
"""
#: seconds from a change to its transaction at least, the share of time for writing, seconds until a failure is retried
_DELAY: Final = 0.2
_SHARE: Final = 0.05
_RETRY: Final = 60.0
#: seconds between two times of the clock that are stored at least: so much less an id may age in a boot
_TICK: Final = 3600.0
_SYSTEM: Final = "/var/lib/bccnd"


class SessionStore:
    """Stores the changes of ``sessions`` in the database at ``path``; ``boot`` names this boot of the host."""

    def __init__(self, path: str, sessions: Sessions, boot: str | None = None) -> None:
        self._path = path
        self._boot = boot_clock.read_boot_id() if boot is None else boot
        self._sessions = sessions
        #: ids in the database, None if that is not known; others without subscriptions need no change there
        self._stored: set[bytes] | None = None
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        sessions.on_change = self._changed.set

    def load(self) -> str:
        """Restore what is stored; if that cannot be read, set it aside and return why."""
        try:
            now = boot_clock.now()
            records, is_this_boot = load(self._path, self._boot, now)
            self._stored = {record.name for record in records}
            self._sessions.restore(records, now)
            if not is_this_boot:  # their times are others now
                self._sessions.changed.update(record.name for record in records)
                self._changed.set()
        except (OSError, sqlite3.OperationalError) as error:  # not permitted, locked: nothing shows that it is damaged
            return f"{self._path} cannot be read: {error}"
        except (ValueError, sqlite3.Error) as error:
            self._stored = set()
            return f"{self._path} cannot be read: {error}; {_set_aside(self._path)}"
        return ""

    async def close(self) -> None:
        """Store what is not stored yet."""
        await self._write()

    async def write_changes(self) -> None:
        """Store changes soon after they are made, until cancelled."""
        delay = _DELAY
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _TICK)
            await asyncio.sleep(delay)
            began = time.monotonic()
            # Closing the store does not cancel a transaction that runs, but waits for it.
            stored = await asyncio.shield(self._write())
            delay = max(_DELAY, (time.monotonic() - began) / _SHARE) if stored else _RETRY

    async def _write(self) -> bool:
        async with self._writing:
            self._changed.clear()
            names, self._sessions.changed = self._sessions.changed, set()
            stored = self._stored
            records = [self._sessions.record(name) for name in names]
            if stored is not None:
                records = [record for record in records if record.topics or record.name in stored]
            try:
                await asyncio.to_thread(save, self._path, records, self._boot, boot_clock.now())
            except (OSError, sqlite3.Error, RuntimeError) as error:  # RuntimeError: no thread can be started
                self._sessions.changed.update(record.name for record in records)
                self._changed.set()
                text = f"subscriptions cannot be written to {self._path}: {error}"
                remedy = "make its folder writable, or name another file in gateways.broker.state"
                log.event("state_not_written", text, about=self._path, remedy=remedy, error=str(error))
                return False
            if stored is not None:
                stored.update(record.name for record in records if record.topics)
                stored.difference_update(record.name for record in records if not record.topics)
        return True


def save(path: str, records: Iterable[Record], boot: str, now: float) -> None:
    """Store records in one transaction. Raises OSError, sqlite3.Error."""
    os.makedirs(os.path.dirname(path) or ".", 0o750, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_SCHEMA)
        database.execute("DELETE FROM clock")
        database.execute("INSERT INTO clock VALUES (?, ?)", (boot, now))
        for name, seen, topics in records:
            database.execute("DELETE FROM ids WHERE id = ?", (name,))
            if topics:
                database.execute("INSERT INTO ids VALUES (?, ?)", (name, seen))
                rows = [(name, topic) for topic in topics]
                database.executemany("INSERT OR IGNORE INTO subscriptions VALUES (?, ?)", rows)


def load(path: str, boot: str, now: float) -> tuple[list[Record], bool]:
    """Return all records, the longest absent first, and whether they were stored in this boot.

    Raises OSError, ValueError, sqlite3.Error.
    """
    if not os.path.exists(path):
        return [], True
    topics: dict[bytes, list[bytes]] = {}
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_SCHEMA)
        for name, topic in database.execute("SELECT id, topic FROM subscriptions"):
            topics.setdefault(name, []).append(topic)
        rows = database.execute("SELECT id, seen FROM ids ORDER BY seen NULLS LAST").fetchall()
        stored_boot, then = database.execute("SELECT boot, now FROM clock").fetchone() or ("", now)
    is_this_boot = bool(boot) and stored_boot == boot
    passed = 0.0 if is_this_boot else now - then
    records = []
    for name, seen in rows:
        if {type(name), *map(type, topics.get(name, ()))} != {bytes} or type(seen) not in (float, type(None)):
            raise ValueError("values have wrong types")
        records.append(Record(name, None if seen is None else seen + passed, tuple(topics.get(name, ()))))
    return records, is_this_boot


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
    try:
        os.replace(path, f"{path}.damaged")
        with suppress(FileNotFoundError):
            os.replace(f"{path}-journal", f"{path}.damaged-journal")
    except OSError as error:
        return f"it cannot be set aside: {error.strerror}"
    return f"it is kept as {path}.damaged"
