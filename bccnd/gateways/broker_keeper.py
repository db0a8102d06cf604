"""When what is known of ids is written: soon after a change, but not for every one, and by a thread.

Law: the loop never waits for a disk. What cannot be written is said, and tried again; what cannot be read is set aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bccnd.gateways.base import Voice
from bccnd.gateways.broker_sessions import Sessions
from bccnd.gateways.broker_state import dump, read, set_aside, write

#: seconds from a change to its being written at the least, and the part of the time that writing may take
_SETTLE: Final = 0.2
_SHARE: Final = 0.05
#: seconds between two attempts to write what could not be written
_AGAIN: Final = 60.0


class Keeper:
    """Keeps what ``sessions`` knows in the file at ``path``. ``dropped`` counts files that cannot be read."""

    def __init__(self, path: str, sessions: Sessions, voice: Voice) -> None:
        self._path = path
        self._sessions = sessions
        self._voice = voice
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1)
        self._stale = False
        self._pause = _SETTLE
        self.dropped = 0

    def load(self) -> None:
        try:
            records = read(self._path)
        except (OSError, ValueError) as error:
            self._set_aside(error)
            return
        self._sessions.restore(records, time.time())

    def _set_aside(self, error: OSError | ValueError) -> None:
        self.dropped += 1
        why = error.strerror if isinstance(error, OSError) else str(error)
        try:
            where = f"it is kept as {set_aside(self._path)}"
        except OSError as another:
            where = f"it cannot be set aside: {another.strerror}"
        self._voice.say(
            "unread",
            "state_dropped",
            f"subscriptions from before are lost: {self._path} cannot be read: {why}; {where}",
            remedy="subscribers have to subscribe again",
            reason="unreadable",
            drop="state_dropped",
        )

    def changed(self) -> None:
        """Something is to be written."""
        self._stale = True
        if self._timer is None and self._writing is None:
            self._timer = self._loop.call_later(self._pause, self._write)

    def _write(self) -> None:
        self._timer = None
        self._stale = False
        began = time.monotonic()
        text = dump(self._sessions.records(time.time()))
        try:
            self._writing = self._loop.run_in_executor(self._thread, write, self._path, text)
        except RuntimeError as error:  # no thread can be started now
            self._later(error)
            return
        self._writing.add_done_callback(lambda done: self._written(done, began))

    def _written(self, done: asyncio.Future[None], began: float) -> None:
        self._writing = None
        self._pause = max(_SETTLE, (time.monotonic() - began) / _SHARE)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._later(error)
        elif self._stale:
            self.changed()

    def _later(self, error: BaseException) -> None:
        self._failed(error)
        self._pause = _AGAIN
        self.changed()

    def _failed(self, error: BaseException) -> None:
        why = error.strerror if isinstance(error, OSError) else repr(error)
        self._voice.say(
            "unwritten",
            "state_not_written",
            f"subscriptions cannot be written to {self._path}: {why}",
            remedy="make its folder writable, or name another file in gateways.broker.state",
            error=why,
        )

    async def close(self) -> None:
        """Write what is not written yet."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            with contextlib.suppress(OSError):
                await self._writing
        self._thread.shutdown()
        if self._stale:
            try:
                write(self._path, dump(self._sessions.records(time.time())))
            except OSError as error:
                self._failed(error)
