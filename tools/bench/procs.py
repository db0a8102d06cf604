"""What the kernel knows of running processes."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all that it has started, and so on."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def cpu_of(pid: int) -> int:
    """Nanoseconds that the threads of a process have been on a processor, user and system."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def kib_of(pid: int, name: str = "VmRSS") -> int:
    """A size of a process, by default what is resident, in KiB; 0 where it has ended."""
    with suppress(OSError):
        found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


class Highest(threading.Thread):
    """Calls ``look`` every so many seconds; `stop` returns the highest value that it has returned."""

    def __init__(self, look: Callable[[], int], seconds: float) -> None:
        super().__init__(daemon=True)
        self._look = look
        self._seconds = seconds
        self._highest = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._highest = max(self._highest, self._look())

    def stop(self) -> int:
        self._ended.set()
        self.join(60)
        return self._highest
