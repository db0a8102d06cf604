"""Waits until a process has nothing to do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.support import wait

#: looks, each after a few milliseconds, that find nothing done
_LOOKS: Final = 10


def wait_until_idle(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process waits for something, or has ended."""
    looks: list[bytes] = []

    def idle() -> bool:
        if process.poll() is not None:
            return True
        fields = Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        looks.append(b" ".join((fields[0], *fields[11:13])))  # its state, and the processor time that it has used
        last = looks[-_LOOKS:]
        return len(last) == _LOOKS and len(set(last)) == 1 and last[0][:1] == b"S"

    wait(idle, "a process that waits")
