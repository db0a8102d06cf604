"""Ends whatever a test process has started, once that process has ended, however it has.

Run beside a test process: guard.py PID FOLDER. What a test process starts is known by the IPC namespace that it has
entered and that all of them share, whatever sessions, groups and parents they have; and what those start in other
namespaces, by its parents. This one removes the test process' folder for temporary files, too.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

#: seconds within which processes that were killed are gone
PATIENCE = 30.0


def _namespace(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/ipc")
    except OSError:  # it has ended, or is another user's
        return ""


def children(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found.update(map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()))
    return found


def descendants(pids: Iterable[int]) -> set[int]:
    """Processes, and all that have come from them."""
    found: set[int] = set()
    coming = set(pids)
    while coming:
        found |= coming
        coming = {child for pid in coming for child in children(pid)} - found
    return found


def in_own_namespace() -> set[int]:
    """The processes of the namespace of this one, without itself."""
    own = _namespace("self")
    found = {int(name) for name in os.listdir("/proc") if name.isdigit() and _namespace(name) == own}
    return found - {os.getpid()}


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def main(pid: int, folder: str) -> None:
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    deadline = time.monotonic() + PATIENCE
    while (left := in_own_namespace()) and time.monotonic() < deadline:
        kill(descendants(left))
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
