"""Faults that were found by reading once, each as the change of a source that puts it back.

The simulation has to find each of them. A change whose place is gone is an error: then say here how the fault would
come back today.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.simulate import interposer


@dataclass(frozen=True)
class Change:
    """In ``module`` (a file of the package) ``new`` takes the place of ``old``, which stands there once."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class KnownFault:
    """A fault, and the changes that put it back."""

    name: str
    what: str
    changes: tuple[Change, ...]


_RATE: Final = """        self._block(client, packet, retry, "rate")

        def again() -> None:
            if client.resume is not None and self._quota.publish(client.account, time.monotonic()):
                self._queues.counters.held.add("rate")
                self._loop.later(1 / self._quota.limits.rate, again)
            elif client.resume is not None:
                self._resume_all([client])

        self._loop.later(0.0, again)
"""

_ALL: Final = (
    KnownFault(
        "stop_drains",
        "a stop reads a socket that outlives the process, faster than clients read",
        (Change("daemon/daemon.py", "while not segment.passed and time.monotonic()", "while time.monotonic()"),),
    ),
    KnownFault(
        "heard_backward",
        "the time at which a source was last heard moves backward, when a datagram waited in a link",
        (Change("core/tracking/dedup.py", "if now > at.heard:", "if True:"),),
    ),
    KnownFault(
        "lost_by_source",
        "after a restart, losses by source count what the daemon before has counted",
        (
            Change(
                "core/tracking/loss_by_source.py",
                "{src: lost for src, (lost,) in self._kept.load()}",
                "{src: 2 * lost for src, (lost,) in self._kept.load()}",
            ),
        ),
    ),
    KnownFault(
        "frozen_cycle",
        "the log of a client that has gone stays in frozen memory, through a cycle",
        (Change("handover/memfd.py", "        self.grown = _ignore  # the", "        # the"),),
    ),
    KnownFault(
        "interned_receivers",
        "the receivers of routes that have gone stay shared",
        (Change("core/matching/routes.py", "Receivers] = WeakValueDictionary()", "Receivers] = {}"),),
    ),
    KnownFault(
        "interface_not_watched",
        "a segment is deaf once its interface was deleted and made anew",
        (
            Change(
                "daemon/daemon.py", "        watch_interfaces(loop, self.segments, self._readers, self._watch)\n", ""
            ),
        ),
    ),
    KnownFault(
        "cut_for_good",
        "a channel first seen without an allowance misses receivers for good",
        (Change("core/matching/routes.py", "self._cut[chan] = self._has_spent(route.cut)", "self._cut[chan] = False"),),
    ),
    KnownFault(
        "child_waited_for",
        "an event of a child that was replaced in this round waits for the end of its successor",
        (
            Change("native/system/poller.pyx", "self._events[number].events = 0", "pass"),
            Change(
                "native/system/poller.py",
                "        self._ready = [(ready, 0 if ready == fd else events) for ready, events in self._ready]\n",
                "",
            ),
            Change("net/process_supervisor.py", "status = _reap(self._pid)", "status = os.waitpid(self._pid, 0)[1]"),
        ),
    ),
    KnownFault(
        "slow_copies",
        "copies under a slow rule hold back those of a fast one",
        (Change("net/transmitter.py", "(not self._timers or due < self._timers[-1])", "not self._timers"),),
    ),
    KnownFault(
        "rate_wakes_all",
        "each token of a user's rate wakes all its waiting publishers",
        (
            Change(
                "bus/incoming/backpressure.py",
                """        self._block(client, packet, retry, "rate")
        account = client.account
        account.waiting[client] = None
        if account.timer is None:
            self._resume_later(account, 0.0)
""",
                _RATE,
            ),
        ),
    ),
    KnownFault(
        "start_is_a_try",
        "starts that are refused count as attempts at the unfinished input, which is dropped",
        (
            Change(
                "handover/stored_state.py",
                "layout.tries(memory, unfinished.serial) >= MAX_TRIES:",
                "layout.count_try(memory, unfinished.serial) or layout.tries(memory, unfinished.serial) > MAX_TRIES:",
            ),
        ),
    ),
    KnownFault(
        "watch_refused",
        "a descriptor that the kernel has no memory to watch ends a client, or the daemon",
        (Change("net/loop.py", "if error.errno not in EXHAUSTED:", "if True:"),),
    ),
    KnownFault(
        "trace_of_gone",
        "a trace meets a client whose patterns are being removed, and ends its own client",
        (Change("bus/clients/receiver_listing.py", "receivers = routes.present(found)", "receivers = tuple(found)"),),
    ),
)

FAULTS: Final = {one.name: one for one in _ALL}


def _folder(name: str) -> Path:
    return interposer.ROOT / "build" / "simulate" / name


def plain_copy() -> Path:
    """Return a folder with a copy of the package that is not compiled. Another process may be using it."""
    source, folder = interposer.ROOT / "bccnd", _folder("plain")
    copy = folder / "bccnd"
    copy.mkdir(parents=True, exist_ok=True)
    built = (".so", ".pyc")
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix not in built}
    for name in wanted:
        content = (source / name).read_bytes()
        if not (copy / name).exists() or (copy / name).read_bytes() != content:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(content)
            os.replace(file.name, copy / name)
    for path in copy.rglob("*"):
        if path.suffix not in ("", ".pyc") and path.relative_to(copy) not in wanted:
            path.unlink(missing_ok=True)
    return folder


def missing(fault: KnownFault) -> list[str]:
    """Return the places of a fault that are gone."""
    found = []
    for change in fault.changes:
        module = interposer.ROOT / "bccnd" / change.module
        count = module.read_text().count(change.old) if module.exists() else 0
        if count != 1:
            found.append(f"bccnd/{change.module} has {change.old!r} {count} times")
    return found


def build(fault: KnownFault) -> Path:
    """Return a folder with the package in which a fault is back; what is compiled of it is compiled again."""
    folder, root = _folder(fault.name), interposer.ROOT
    (folder / "build").mkdir(parents=True, exist_ok=True)
    # Times are kept: only what has changed is compiled again.
    shutil.rmtree(folder / "bccnd", ignore_errors=True)
    shutil.copytree(root / "bccnd", folder / "bccnd", ignore=shutil.ignore_patterns("__pycache__"))
    if places := missing(fault):
        raise SystemExit(f"{fault.name}: {'; '.join(places)}; say in {__name__} how this fault would come back today")
    for change in fault.changes:
        module = folder / "bccnd" / change.module
        module.write_text(module.read_text().replace(change.old, change.new))
    names = {f"bccnd.{one.module.rpartition('.')[0].replace('/', '.')}" for one in fault.changes}
    compiled = runpy.run_path(str(root / "bccnd" / "compiled_modules.py"))["COMPILED"]
    if names.intersection(compiled) and list((root / "bccnd").glob("_compiled*.so")):
        for made in ("c", *(one.name for one in (root / "build").glob("temp.*"))):
            if not (folder / "build" / made).exists():
                shutil.copytree(root / "build" / made, folder / "build" / made)
        shutil.copy2(root / "setup.py", folder)
        shutil.copy2(root / "pyproject.toml", folder)
        (folder / "README.md").touch()
        (folder / "LICENSE").touch()
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=2)
    return folder
