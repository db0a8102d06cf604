"""The load programs: C in `load/`, compiled when they are needed; and what the kernel knows of running programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = Path(__file__).parent / "load"
FLAGS: Final = ("-O2", "-Wall", "-Wextra")
NAMES: Final = ("send", "floor", "drain")


class CannotBuild(Exception):
    """Why there are no load programs, and what to do about it."""


def build(folder: Path) -> Path:
    """Compile what is missing or out of date; returns the folder of the programs. Raises CannotBuild."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    for name in NAMES:
        program = folder / name
        if not program.exists() or program.stat().st_mtime < newest:
            compile_one(SOURCES / f"{name}.c", program)
    return folder


def compile_one(source: Path, program: Path, *flags: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        raise CannotBuild("there is no C compiler: apt-get install gcc libc6-dev libssl-dev")
    # Under another name first: another process may be running it, or compiling it as well.
    fresh = program.with_name(f"{program.name}.{os.getpid()}")
    command = [compiler, *FLAGS, *flags, "-o", str(fresh), str(source), "-lcrypto"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        if "openssl/" in done.stderr or "-lcrypto" in done.stderr:
            raise CannotBuild("OpenSSL's headers are missing: apt-get install libssl-dev")
        raise CannotBuild(f"{source.name} does not compile:\n{done.stderr.strip()}")
    fresh.replace(program)


def cpu_of(pid: int) -> int:
    """Return the nanoseconds that the threads of a process have been on a processor, user and system."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def kib_of(pid: int, name: str = "VmRSS") -> int:
    """Return a size of a process, by default what is resident, in KiB; 0 where it has ended."""
    with suppress(OSError):
        found = re.search(rf"^{name}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0
