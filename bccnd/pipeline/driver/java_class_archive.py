"""Java's class-data archive, with which Spark starts in about half the time.

The first complete run records which classes Java loads, a process in the background makes the archive, and later runs
use it. Nothing of that can fail a run. This file is also the program of that process. Source: java(1), "Application
Class Data Sharing".
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_RECORD: Final = "-XX:DumpLoadedClassList="
_USE: Final = "-XX:SharedArchiveFile="
#: Java must not report an archive that it cannot use
_QUIET: Final = "-Xlog:disable"
#: options of Java stand before it
_MAIN_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"
#: seconds that Java may take to end, and to make an archive
_END: Final = 10.0
_MAKE: Final = 900.0
#: seconds after which an unused archive is removed, and after which what an interrupted run or attempt left is
_UNUSED: Final = 30 * 86_400.0
_RETRY: Final = 86_400.0


def options(depends_on: Sequence[object]) -> str:
    """Options for Java: use the archive, or else record the classes for it; empty if neither is possible. An archive
    belongs to the values that it ``depends_on``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "bccnd"
    archive = cache / f"spark-{hashlib.sha256(repr(depends_on).encode()).hexdigest()[:16]}.jsa"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Java runs what is in an archive. Spark splits options at blanks.
        if cache.stat().st_uid != os.geteuid() or not cache.is_absolute() or len(str(cache).split()) > 1:
            return ""
        if archive.exists():
            status = archive.stat()
            if status.st_size:
                with suppress(OSError):
                    os.utime(archive)
                return f"{_USE}{archive} {_QUIET}"
            if time.time() - status.st_mtime < _RETRY:
                return ""
        descriptor, classes = tempfile.mkstemp(".classes", f"{archive.stem}.", cache)
        os.close(descriptor)
    except OSError:
        return ""
    return f"{_RECORD}{classes} {_QUIET}"


def finish(java: subprocess.Popen[bytes], *, complete: bool) -> None:
    """End Java. If it has recorded its classes and the run was ``complete``, start to make the archive."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        command = Path(f"/proc/{java.pid}/cmdline").read_bytes().decode().split("\0")
        java.stdin.close()  # type: ignore[union-attr]  # pyspark makes it a pipe
        recorded = next((arg.removeprefix(_RECORD) for arg in command if arg.startswith(_RECORD)), "")
        if not recorded or _MAIN_CLASS not in command:
            java.returncode = 0  # it ends by itself, and nothing waits for it
            return
        java.wait(_END)
        if not complete:
            os.unlink(recorded)
            return
        null = subprocess.DEVNULL
        program = [sys.executable, "-P", __file__, recorded, *command[: command.index(_MAIN_CLASS)]]
        making = subprocess.Popen(program, stdin=null, stdout=null, stderr=null, start_new_session=True)  # noqa: S603
        if os.environ.get("INVOCATION_ID") and not sys.stderr.isatty():
            making.wait(_MAKE)  # systemd kills what a service leaves behind
        making.returncode = 0


def make(recorded: Path, java: Iterable[str]) -> None:
    """Make the archive of the recorded classes with the command ``java``, unless another process does. An attempt that
    fails leaves an empty archive."""
    archive = recorded.with_name(f"{recorded.name.partition('.')[0]}.jsa")
    unfinished = archive.with_suffix(".new")
    options = [arg for arg in java if not arg.startswith(_RECORD) and not (arg.startswith("-XX:+Use") and "GC" in arg)]
    dump = [options[0], "-Xshare:dump", f"-XX:SharedClassListFile={recorded}", f"{_USE}{unfinished}", *options[1:]]
    with open(archive.with_suffix(".lock"), "w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not archive.exists() or not archive.stat().st_size:
            os.nice(19)
            unfinished.unlink(missing_ok=True)
            if subprocess.run(dump, check=False, timeout=_MAKE).returncode:  # noqa: S603
                unfinished.unlink(missing_ok=True)
            unfinished.touch()
            unfinished.replace(archive)
        for old in archive.parent.glob("spark-*"):
            if time.time() - old.stat().st_mtime > (_UNUSED if old.suffix == archive.suffix else _RETRY):
                old.unlink(missing_ok=True)
    recorded.unlink(missing_ok=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:])
