"""Builds the interposer, starts this program again under it, and controls it; see interposer.c."""

from __future__ import annotations

import ctypes
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tools.simulate.violation import Violation

ROOT: Final = Path(__file__).parents[2]
_SOURCE: Final = Path(__file__).with_suffix(".c")
#: set in the process that runs under the interposer
_MARK: Final = "BCCND_SIMULATED"
#: seconds of the machine's own clock for what takes no time to speak of
_PATIENCE: Final = 60.0

#: kinds of calls that can be made to fail
CAST: Final = 1
BUS: Final = 2
FILE: Final = 4
MEMORY: Final = 8
RECEIVE: Final = 16
ACCEPT: Final = 32
WATCH: Final = 64
#: not a failure: some of many messages are sent or received at once
SHORT: Final = 128

_lib: Final = ctypes.CDLL(None)


def is_active() -> bool:
    return _MARK in os.environ


def run_again(arguments: Sequence[str], *, uncompiled: bool) -> None:
    """Replace this process by one under the interposer."""
    os.execve(sys.executable, _command(arguments), _environment(uncompiled=uncompiled))


def run_beside(arguments: Sequence[str], *, uncompiled: bool) -> int:
    """Run the simulation in a process of its own, silently; return its status."""
    command, variables = _command(arguments), _environment(uncompiled=uncompiled)
    return subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=False).returncode


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tools.simulate", *arguments]


def _environment(*, uncompiled: bool) -> dict[str, str]:
    """Return the environment of a process under the interposer."""
    library = ROOT / "build" / "simulate" / "interposer.so"
    if not library.exists() or library.stat().st_mtime < _SOURCE.stat().st_mtime:
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")
        command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True, timeout=_PATIENCE)
        made.replace(library)
    return {
        **os.environ,
        _MARK: "1",
        "LD_PRELOAD": str(library),
        "PYTHONHASHSEED": "0",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(ROOT),
        **({"BCCND_CORE": "python"} if uncompiled else {}),
    }


def _function(name: str, result: type | None, *arguments: type) -> Any:
    found = getattr(_lib, name)
    found.restype, found.argtypes = result, arguments
    return found


if is_active():
    _i64 = ctypes.c_int64
    set_clocks = _function("sim_set_clocks", None, _i64, _i64)
    mono_ns = _function("sim_mono_ns", _i64)
    wall_ns = _function("sim_wall_ns", _i64)
    #: nanoseconds of the machine's own monotonic clock
    kernel_ns = _function("sim_kernel_ns", _i64)
    #: begin a step; it is killed at the call of this number (0: never)
    arm = _function("sim_arm", None, ctypes.c_long)
    #: the call that follows and all later ones have their effect again
    disarm = _function("sim_disarm", None)
    #: from now on calls have no effect, as in a process that was killed
    stay_dead = _function("sim_stay_dead", None)
    dead = _function("sim_dead", ctypes.c_int)
    #: the epoll instance of the last poll of the event loop
    polled_fd = _function("sim_polled_fd", ctypes.c_int)
    #: whether a step has made a call that would have waited
    blocked = _function("sim_blocked", ctypes.c_int)
    #: calls of this step that are seen from outside, and calls that were made to fail so far
    calls = _function("sim_calls", ctypes.c_uint64)
    failed = _function("sim_failed", ctypes.c_uint64)
    #: fail so many calls of some kinds with an errno
    fail = _function("sim_fail", None, ctypes.c_int, ctypes.c_int, ctypes.c_long)


def wait(done: Callable[[], object], what: str) -> None:
    """Wait until ``done()`` is true, by the machine's own clock; raise a Violation that says for what."""
    deadline = kernel_ns() + _PATIENCE * 1e9
    while not done():
        if kernel_ns() > deadline:
            raise Violation(f"waited {_PATIENCE:.0f} s in vain for {what}")
        # A sleep would move the virtual clock, in a step.
        select.select([], [], [], 0.001)
