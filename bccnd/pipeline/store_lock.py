"""The lock that keeps two runs from working on the same tables.

On a local disk the kernel keeps it: it ends with its owner. Elsewhere it is a file that names its owner. No store of
objects creates a file only where there is none: of two runs that begin in the same moment the later one has the lock,
and the other learns of it when it asks again (`LockFile.check`), before it changes anything.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from typing import Any, Final

from bccnd.errors import PipelineError
from bccnd.pipeline.store_files import Root

LOCK: Final = "_lock"


class KernelLock:
    """Locks a local folder. Raises PipelineError: in_use."""

    def __init__(self, root: Root) -> None:
        self._descriptor = os.open(f"{root.path}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = json.loads(os.pread(self._descriptor, 4096, 0) or b"{}")
            os.close(self._descriptor)
            raise _in_use(root, owner) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(_owner()).encode(), 0)

    def check(self) -> None:
        """Nothing can have taken it away."""

    def release(self) -> None:
        os.close(self._descriptor)


class LockFile:
    """Locks a folder elsewhere; ``run`` is this run's own name. Raises PipelineError: in_use."""

    def __init__(self, root: Root, run: str) -> None:
        self._root = root
        self._mine = {**_owner(), "run": run}
        owner = self._read()
        if owner and not _is_dead(owner):
            raise _in_use(root, owner)
        root.put(LOCK, json.dumps(self._mine))
        self.check()

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self._root.text(LOCK) or "{}"))

    def check(self) -> None:
        """Whether the lock is still that of this run. Raises PipelineError: in_use."""
        owner = self._read()
        if owner != self._mine:
            raise _in_use(self._root, owner)

    def release(self) -> None:
        if self._read() == self._mine:
            self._root.remove(LOCK)


def _owner() -> dict[str, str | int]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


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
    remedy = "wait for it to end"
    if not root.is_local:
        remedy += f"; if it is dead, remove {root.at(LOCK)}"
    return PipelineError("in_use", f"{process} is at work on {root.where}", remedy)
