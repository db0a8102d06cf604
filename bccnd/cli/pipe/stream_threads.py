"""Standard input and output of `bccn pipe`, each with a thread: they may be pipes, files or terminals, and neither
waits for the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from bccnd.cli.pipe.json_lines import MAX_LINE
from bccnd.waiting_io import read_input, write_output

_CHUNK: Final = 65_536
#: bytes that may wait to be written before nothing more is read
_ROOM: Final = 1 << 20


class LineReader:
    """Reads lines from a descriptor, and has the loop call ``on_lines`` with those that are complete; with None at the
    end. Reads no more until `resume` is called. A line that is too long is passed on as its beginning, longer than
    `MAX_LINE`."""

    def __init__(
        self, fd: int, loop: asyncio.AbstractEventLoop, on_lines: Callable[[list[bytes] | None], None]
    ) -> None:
        self._fd, self._loop, self._on_lines = fd, loop, on_lines
        self._rest = b""
        self._may_read = threading.Semaphore(1)
        # A daemon thread: it may wait for input when the program ends.
        threading.Thread(target=self._run, daemon=True).start()

    def resume(self) -> None:
        self._may_read.release()

    def _run(self) -> None:
        chunk = b"x"
        while chunk:
            self._may_read.acquire()
            try:
                chunk = read_input(self._fd, _CHUNK)
            except OSError:  # a terminal that has gone, or a closed descriptor
                chunk = b""
            lines = self._split(chunk)
            try:
                if lines or not chunk:
                    self._loop.call_soon_threadsafe(self._on_lines, lines)
                else:
                    self._may_read.release()
                if not chunk:
                    self._loop.call_soon_threadsafe(self._on_lines, None)
            except RuntimeError:  # the loop has ended
                return

    def _split(self, chunk: bytes) -> list[bytes]:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[: MAX_LINE + 1]
        return [*lines, *([self._rest] if not chunk and self._rest else [])]


class LineWriter:
    """Writes to a descriptor what `write` is given, in the background. The loop calls ``on_room`` when there is room
    again after `is_full` was true, and ``on_broken`` when nobody reads any more."""

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        on_room: Callable[[], None],
        on_broken: Callable[[OSError], None],
    ) -> None:
        self._fd, self._loop, self._on_room, self._on_broken = fd, loop, on_room, on_broken
        self._lines: list[bytes] = []
        #: bytes that wait
        self.size = 0
        #: why writing has ended, if it has
        self.error: OSError | None = None
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        return self.size > _ROOM

    def write(self, line: bytes) -> None:
        with self._changed:
            self._lines.append(line)
            self.size += len(line)
            self._changed.notify()

    def close(self) -> None:
        """Wait until everything was written."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._over:
                    self._changed.wait()
                if not self._lines:
                    return
                data, self._lines = memoryview(b"".join(self._lines)), []
            size = len(data)
            try:
                while data:
                    data = data[write_output(self._fd, data) :]
            except OSError as error:
                self.error = error
                self._tell(self._on_broken, error)
                return
            with self._changed:
                was_full = self.is_full
                self.size -= size
            if was_full and not self.is_full:
                self._tell(self._on_room)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop has ended
            return
