"""Programs and files of the system, asked without being waited for.

Law: what is not there, may not be read or takes too long is told as such, and never raised.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

#: seconds within which a program of the system answers a simple question
PATIENCE: Final = 5.0
#: where programs of the administrator are, which are not in everybody's path
_PLACES: Final = "/usr/sbin:/sbin:/usr/bin:/bin"


class Said(NamedTuple):
    """What a program has said; ``trouble`` is why it said nothing useful."""

    text: str = ""
    trouble: str = ""


def ask(*words: str) -> Said:
    """Run a program of the system."""
    program = shutil.which(words[0], path=f"{os.environ.get('PATH', '')}:{_PLACES}")
    if program is None:
        return Said(trouble=f"there is no {words[0]} here")
    try:
        done = subprocess.run(  # noqa: S603 - words of ours, and no shell
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired:
        return Said(trouble=f"{words[0]} has not answered within {PATIENCE:g} s")
    except OSError as error:
        return Said(trouble=f"{words[0]} cannot be run: {error.strerror}")
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        return Said(text, f"{words[0]} says: {lines[0].strip()}")
    return Said(text)


def content(path: str) -> str | None:
    """What a small file holds, None where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def number_in(path: str) -> int | None:
    text = content(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def links_of(pid: int) -> list[str]:
    """What the descriptors of a process lead to; none where they may not be looked at."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return [found for entry in entries if (found := _target(entry.path))]
    except OSError:
        return []


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # it was closed meanwhile
        return ""


def pids() -> list[int]:
    """All processes that can be seen."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def program_of(pid: int) -> str:
    """What a process is called."""
    return (content(f"/proc/{pid}/comm") or "?").strip()


def state_of(pid: int) -> str:
    """R, S, T, ... as proc(5) has it; empty where there is no such process."""
    text = content(f"/proc/{pid}/stat") or ""
    rest = text.rpartition(")")[2].split()
    return rest[0] if rest else ""
