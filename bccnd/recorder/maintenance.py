"""Converts logs to files of the journal, merges files of past days and removes old ones, beside the recording.

Invariant: one thread, which waits for another process, converts one log after the other, the oldest first; the
recording never waits for either. A log that cannot be converted now stays and is tried again; one that never can be is
set aside. Files are merged while no log waits.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
import time
from collections import deque
from typing import Any, Final

from bccnd import log
from bccnd.config.recorder_schema import KeepSettings
from bccnd.errors import JournalError
from bccnd.journal import file_names
from bccnd.recorder.converter_process import ConverterProcess
from bccnd.recorder.spool import Spool

#: seconds between two attempts to write to a journal that cannot be written to: at first, and at last
RETRY: Final = 1.0
LONGEST: Final = 30.0
#: deaths of the converting process over one log; then the log is set aside
MAX_DEATHS: Final = 3
#: seconds between two looks at what is too old, while nothing is finished
_LOOK: Final = 600.0
#: seconds after midnight (UTC) until the files of the day before are merged, in addition to a rotation
_SETTLED: Final = 600.0


class Maintenance:
    """``recovered`` logs were there at the start, ``bad`` were set aside, ``torn`` ended in the midst of a record,
    ``removed`` files went by retention, ``merged`` files are in merged ones now. ``trouble`` says why nothing can be
    finished now, and is empty otherwise. ``rotate`` is how many seconds a log is written at most."""

    def __init__(self, spool: Spool, journal: str, host: str, keep: KeepSettings, rotate: float = 60.0) -> None:
        self.rows = self.files = self.bytes = 0
        self.recovered = self.torn = self.bad = self.removed = self.merged = 0
        self.trouble = ""
        #: the journal that is written now
        self.current = ""
        self._spool, self._journal, self._host = spool, journal, host
        self._keep, self._rotate = keep, rotate
        #: the days from and before which files are merged, what is left alone, when to look again, and whether it is
        #: being done now
        self._days = ["", ""]
        self._skipped: list[str] = []
        self._merge_at = 0.0
        self._merging = False
        self._merge_failed = False
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
            if self._merging:
                self._child.kill()
            self._lock.notify()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    # -- the thread

    def _run(self) -> None:
        wait = RETRY
        while True:
            with self._lock:
                if not self._waiting and not self._ends and not self._may_merge():
                    self._lock.wait(_LOOK)
                path = self._waiting[0][0] if self._waiting else ""
                if not path and self._ends:
                    break
            try:
                if path:
                    self._finish(path)
                elif self._may_merge():
                    self._merge()
                self._retain(bool(path))
            except (OSError, JournalError) as error:
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
        except JournalError as error:
            bad = error.detail
        except BrokenPipeError:
            self._deaths += 1
            if self._deaths < MAX_DEATHS:
                raise
            bad = f"the process that converts it has died {self._deaths} times"
        else:
            if "bug" in answer:
                remedy = "report it, with the lines that follow here"
                log.event("internal_error", f"a bug met with the log {path}: {answer['bug']}", remedy=remedy)
                bad = "a bug"
            else:
                rows = answer["rows"]
                self.rows += rows
                self.files += answer["files"]
                self.bytes += answer["bytes"]
                self.torn += answer["end"] == "torn"
                if answer["end"] == "damaged":
                    bad = f"a record behind the first {answer['saved']} bytes cannot be read; what precedes it is saved"
        self._deaths = 0
        if bad:
            removed = self._spool.removed
            place = self._spool.set_aside(path)
            self.bad += 1
            text = f"a log of records was set aside as {place}: {bad}"
            remedy = "see whether this disk is in order; then remove the file"
            log.event("log_set_aside", text, remedy=remedy, file=place, drop="recorder_logs_set_aside")
            if self._spool.removed > removed:
                text = "a log that had been set aside was removed, as there are so many newer ones"
                log.event("log_set_aside", text, remedy=remedy, file=place, drop="recorder_logs_removed")
        else:
            os.unlink(path)
        if path in self._old:
            self._old.discard(path)
            self.recovered += 1
            if rows:
                text = f"{rows} records that a recorder had left in {path} are in the journal"
                log.event("log_recovered", text, count=rows)
        with self._lock:
            self._waiting.popleft()

    def _may_merge(self) -> bool:
        """Whether there may be files to merge, or to remove behind that."""
        before = file_names.day_of(int((time.time() - _SETTLED - self._rotate) * file_names.MICROSECONDS))
        if before != self._days[1]:
            self._days, self._merge_at = ["", before], 0.0
        return time.monotonic() >= self._merge_at

    def _merge(self) -> None:
        """Merge files up to one merged file."""
        with self._lock:
            self._merging = not self._ends
        if not self._merging:
            return
        error, step = "", dict[str, Any]()
        try:
            step = self._child.ask(
                {"journal": self._journal, "host": self._host, "days": self._days, "skip": self._skipped}
            )
            error = step.get("bug", "")
        except (OSError, JournalError) as failed:
            error = str(failed)
        with self._lock:
            self._merging = False
            ends = self._ends
        if ends:
            self._child.end()  # it was killed, perhaps behind its answer
            return
        if step.get("damaged"):
            self._skipped.append(step["damaged"])
            error = f"{step['damaged']} cannot be read"
        if error and not self._merge_failed:
            text = f"files of past days in {self._journal} are not merged: {error}"
            remedy = "see whether the journal's disk is in order and has room; the files stay as they are"
            log.event("merge_failed", text, remedy=remedy)
        self._merge_failed = bool(error)
        self._days[0] = step.get("day", "")
        if not self._days[0]:  # the end of a pass, or of this attempt
            self._merge_at = time.monotonic() + _LOOK if error or step.get("waiting") else math.inf
        if step.get("merged"):
            self.merged += step["merged"]
            text = f"{step['merged']} files with {step['records']} records are merged into {step['file']}"
            log.event("files_merged", text, file=step["file"], count=step["merged"])

    def _retain(self, finished: bool) -> None:
        now = time.monotonic()
        if not (self._keep.age or self._keep.size) or (not finished and now - self._retained < _LOOK):
            return
        self._retained = now
        request = {"journal": self._journal, "host": self._host, "current": self.current}
        answer = self._child.ask({**request, "age": self._keep.age, "size": self._keep.size})
        self.removed += answer.get("files", 0)

    def _on_failure(self, error: Exception) -> None:
        logged, self.trouble = bool(self.trouble), str(error).splitlines()[0]
        if not logged:
            remedy = "make the journal writable, and make room there; what is recorded waits in the spool until then"
            text = f"the journal {self._journal} cannot be written to: {self.trouble}"
            log.event("journal_unreachable", text, remedy=remedy, error=name_of(error))
        with contextlib.suppress(OSError, JournalError):  # what is too old may make the room
            self._retain(finished=True)

    def _on_success(self) -> None:
        if self.trouble:
            log.event("journal_reached", f"the journal {self._journal} can be written to again")
        self.trouble = ""


def name_of(error: Exception) -> str:
    """Return the kernel's name of an error, or its type where it has none."""
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number or 0, type(error).__name__)


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
