"""Gives a test process what is its own: namespaces, a folder for temporary files, and a guard that ends what it starts.

Where the kernel permits no namespaces, a test process shares those of the machine, and has no guard.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tools.namespaces import enter_ipc_namespace, enter_network_namespace, namespaces_permitted, own_network_names

#: in the environment of what a guarded test process starts: the namespace by which its guard knows them
GUARDED: Final = "BCCND_TESTS_GUARDED"


class Isolation(NamedTuple):
    """What a guarded test process has of its own: a folder for temporary files, its guard, names of networks."""

    temporary: Path
    guard: int
    networks: Path | None


def isolate(*, own_network: bool) -> Isolation | None:
    """To be called once, before anything is started."""
    if own_network and namespaces_permitted():
        enter_network_namespace()
    # A test run that a test has started ends with all that this test has started.
    if os.environ.get(GUARDED) == os.readlink("/proc/self/ns/ipc") or not enter_ipc_namespace():
        return None
    os.environ[GUARDED] = os.readlink("/proc/self/ns/ipc")
    # pytest's own folders stay where people look for them.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    temporary = tempfile.mkdtemp(prefix="bccnd-tests-")
    os.chmod(temporary, 0o1777)  # like the folder for which it stands
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    networks = own_network_names()
    return Isolation(Path(temporary), _start_guard(temporary), networks)


def _start_guard(folder: str) -> int:
    """Start it as nobody's child, so that tests may wait for whatever child there is; return its pid."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py")), str(os.getpid()), folder]
    # It outlives Ctrl-C, and keeps no pipe open of the program that reads what this process writes.
    null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            guard = os.posix_spawn(sys.executable, command, os.environ, file_actions=null, setsid=True)
            os.write(write, b"%d" % guard)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read, "rb") as pid:
        return int(pid.read())
