"""Converts logs to files of the journal and removes old files, beside the recording.

Invariant: one thread, which waits for another process, converts one log after the other, the oldest first; the
recording never waits for either. A log that cannot be converted now stays and is tried again; one that never can be is
set aside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import deque
from typing import Final

from bccnd import log
from bccnd.config.recorder_schema import KeepSettings
from bccnd.recorder.clock_steps import ClockTrust
from bccnd.recorder.converter_process import ConverterProcess
from bccnd.recorder.spool import Spool

#: seconds between two attempts to write to a journal that cannot be written to: at first, and at last
RETRY: Final = 1.0
LONGEST: Final = 30.0
#: deaths of the converting process over one log; then the log is set aside
MAX_DEATHS: Final = 3
#: seconds between two looks at what is too old, while nothing is finished
_LOOK: Final = 600.0


class Maintenance:
    """``recovered`` logs were there at the start, ``bad`` were set aside, ``torn`` ended in the midst of a record,
    ``removed`` files went by retention. ``trouble`` says why nothing can be finished now, and is empty otherwise; so
    does ``doubt`` why the clock is not believed and no file counts as too old."""

    def __init__(
        self, spool: Spool, journal: str, host: str, keep: KeepSettings, clock: ClockTrust | None = None
    ) -> None:
        self.rows = self.files = self.bytes = 0
        self.recovered = self.torn = self.bad = self.removed = 0
        self.trouble = self.doubt = ""
        #: the journal that is written now
        self.current = ""
        self._spool, self._journal, self._host = spool, journal, host
        self._keep = keep
        self._clock = clock or ClockTrust()
        self._lock = threading.Condition()
        self._waiting: deque[tuple[str, int]] = deque()
        self._old: set[str] = set()
        self._ends = False
        self._retained = 0.0
        self._child = ConverterProcess(spool.folder)
        self._deaths = 0
        for path in spool.leftovers():
            self._old.add(path)
            self._waiting.append((path, os.path.getsize(path)))
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def start(self) -> None:
        self._child.start()
        self._thread.start()

    def add(self, path: str, size: int) -> None:
        """Take over a log that is complete."""
        with self._lock:
            self._waiting.append((path, size))
            self._lock.notify()

    @property
    def pending(self) -> int:
        """Bytes of the logs that wait."""
        with self._lock:
            return sum(size for _, size in self._waiting)

    @property
    def logs(self) -> int:
        """Logs that wait."""
        return len(self._waiting)

    @property
    def behind(self) -> float:
        """Seconds since the last record of the log that waits for longest; 0 if none waits."""
        with self._lock:
            oldest = self._waiting[0][0] if self._waiting else ""
        try:
            return max(0.0, time.time() - os.stat(oldest).st_mtime)
        except FileNotFoundError:  # none waits, or it has become files just now
            return 0.0

    def end(self) -> None:
        """Try each log that waits once, and end: `done` is true then."""
        with self._lock:
            self._ends = True
            self._lock.notify()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    # -- the thread

    def _run(self) -> None:
        wait = RETRY
        while True:
            with self._lock:
                if not self._waiting and not self._ends:
                    self._lock.wait(_LOOK)
                path = self._waiting[0][0] if self._waiting else ""
                if not path and self._ends:
                    break
            try:
                if path:
                    self._finish(path)
                self._retain(bool(path))
            except OSError as error:
                self._on_failure(error)
                with self._lock:
                    if self._ends:
                        break
                    self._lock.wait_for(lambda: self._ends, wait)
                wait = min(LONGEST, 2 * wait)
            else:
                wait = RETRY
                self._on_success()
        self._child.end()

    def _finish(self, path: str) -> None:
        """Turn a log into files. Raises OSError where that may go well another time."""
        rows, bad = 0, ""
        try:
            answer = self._child.ask({"journal": self._journal, "log": path})
        except BrokenPipeError:
            self._deaths += 1
            if self._deaths < MAX_DEATHS:
                raise
            bad = f"the process that converts it has died {self._deaths} times"
        except OSError:
            if os.path.exists(path):
                raise
            text = f"the log {path} was removed before its records were in the journal; the others are converted"
            log.event("log_gone", text, remedy="leave the files of a spool to the recorder", file=path)
            self._done_with(path)
            return
        else:
            if "bug" in answer:
                remedy = "report it, with the lines that follow here"
                log.event("internal_error", f"a bug met with the log {path}: {answer['bug']}", remedy=remedy)
            bad = answer.get("bad", "a bug" if "bug" in answer else "")
            if not bad:
                rows = answer["rows"]
                self.rows += rows
                self.files += answer["files"]
                self.bytes += answer["bytes"]
                self.torn += answer["end"] == "torn"
                if answer["end"] == "damaged":
                    bad = f"a record behind the first {answer['saved']} bytes cannot be read; what precedes it is saved"
        self._deaths = 0
        if bad:
            self._set_aside(path, bad)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        if path in self._old:
            self.recovered += 1
            if rows:
                text = f"{rows} records that a recorder had left in {path} are in the journal"
                log.event("log_recovered", text, count=rows)
        self._done_with(path)

    def _set_aside(self, path: str, why: str) -> None:
        removed = self._spool.removed
        place = self._spool.set_aside(path)
        self.bad += 1
        text = f"a log of records was set aside as {place}: {why}"
        remedy = "see whether this disk is in order; then remove the file"
        log.event("log_set_aside", text, remedy=remedy, file=place, drop="recorder_logs_set_aside")
        if self._spool.removed > removed:
            text = "a log that had been set aside was removed, as there are so many newer ones"
            log.event("log_set_aside", text, remedy=remedy, file=place, drop="recorder_logs_removed")

    def _done_with(self, path: str) -> None:
        self._old.discard(path)
        with self._lock:
            self._waiting.popleft()

    def _retain(self, finished: bool) -> None:
        now = time.monotonic()
        if not (self._keep.age or self._keep.size) or (not finished and now - self._retained < _LOOK):
            return
        self._retained = now
        request = {"journal": self._journal, "host": self._host, "current": self.current}
        age = self._keep.age if self._keep.age and self._believes_clock() else 0
        answer = self._child.ask({**request, "age": age, "size": self._keep.size})
        self.removed += answer.get("files", 0)

    def _believes_clock(self) -> bool:
        """Whether files may be removed by their age; log when that changes."""
        doubted, self.doubt = self.doubt, self._clock.doubt()
        if self.doubt and not doubted:
            text = f"no file is removed because of its age: the clock of this host is not trusted, as {self.doubt}"
            remedy = "run a time service (chrony: with rtcsync), and see timedatectl; recorder.keep.size still limits"
            log.event("age_limit_suspended", text, remedy=remedy, cause=self.doubt)
        elif doubted and not self.doubt:
            log.event("age_limit_resumed", "files are removed because of their age again: the clock is trusted")
        return not self.doubt

    def _on_failure(self, error: OSError) -> None:
        logged, self.trouble = bool(self.trouble), str(error).splitlines()[0]
        if not logged:
            remedy = "make the journal writable, and make room there; what is recorded waits in the spool until then"
            text = f"the journal {self._journal} cannot be written to: {self.trouble}"
            log.event("journal_unreachable", text, remedy=remedy, error=name_of(error))
        with contextlib.suppress(OSError):  # what is too old may make the room
            self._retain(finished=True)

    def _on_success(self) -> None:
        if self.trouble:
            log.event("journal_reached", f"the journal {self._journal} can be written to again")
        self.trouble = ""


def name_of(error: OSError) -> str:
    """Return the kernel's name of an error, or its type where it has none."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


class Syncer:
    """Syncs logs to the disk in a thread of its own: a slow disk holds up nothing. ``failed`` is the last error."""

    def __init__(self) -> None:
        self.failed: OSError | None = None
        self._fd = -1
        self._asked = threading.Event()
        threading.Thread(target=self._run, name="disk", daemon=True).start()

    def ask(self, fd: int) -> None:
        """Sync a file, unless the sync before is still under way."""
        if self._fd < 0:
            self._fd = os.dup(fd)
            self._asked.set()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self.failed = error
            os.close(self._fd)
            self._fd = -1
