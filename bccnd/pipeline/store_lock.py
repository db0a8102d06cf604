"""The lock that keeps two runs from working on the same tables.

On a local disk the kernel keeps it: it ends with its owner. Elsewhere it is a file that names its owner. No store of
objects creates a file only where there is none: of two runs that begin in the same moment the later one has the lock,
and the other finds this when it checks again, before it changes anything.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from bccnd.errors import PipelineError
from bccnd.pipeline.store_files import Root

LOCK: Final = "_lock"


@contextmanager
def locked(root: Root, run: str) -> Iterator[Callable[[], None]]:
    """Lock a folder for a run; yields a function that checks that it still is. Both raise PipelineError: in_use."""
    mine: dict[str, Any] = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "run": run,
    }
    if root.is_local:
        with _locked_by_kernel(root, mine):
            yield lambda: None
        return

    def owner() -> dict[str, Any]:
        return dict(json.loads(root.text(LOCK) or "{}"))

    def check() -> None:
        if owner() != mine:
            raise _in_use(root, owner())

    if (other := owner()) and not _is_dead(other):
        raise _in_use(root, other)
    root.put(LOCK, json.dumps(mine))
    check()
    try:
        yield check
    finally:
        if owner() == mine:
            root.remove(LOCK)


@contextmanager
def _locked_by_kernel(root: Root, mine: dict[str, Any]) -> Iterator[None]:
    descriptor = os.open(f"{root.path}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(root, json.loads(os.pread(descriptor, 4096, 0) or b"{}")) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(mine).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _started(pid: int) -> int:
    """When a process began, in ticks since boot: with its pid it names a process. 0 where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _is_dead(owner: dict[str, Any]) -> bool:
    """Whether a lock was left by a process of this host that has ended; nothing is known here of other hosts."""
    return owner.get("host") == socket.gethostname() and _started(int(owner["pid"])) != owner.get("started")


def _in_use(root: Root, owner: dict[str, Any]) -> PipelineError:
    process = f"process {owner['pid']} of {owner['host']}" if "pid" in owner else "another run"
    remedy = "wait for it to end" if root.is_local else f"wait for it to end; if it is dead, remove {root.at(LOCK)}"
    return PipelineError("in_use", f"{process} is at work on {root.where}", remedy)
