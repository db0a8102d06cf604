"""A plugin of pytest: a test fails that leaves something behind, and what it leaves is ended before the next one.

That is a process, a descriptor of this process, a temporary file, the name of a network namespace, or a handler of the
package's log, which writes the lines of later tests, too. What a fixture of a module or the session opens stays, with
all that its processes start.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests import guard
from tests.isolation import Isolation

#: seconds within which is gone what is about to go: the machine may be busy
_PATIENCE: Final = 10.0
#: to what libraries keep a descriptor once a test has made them open it
_KEPT_BY_LIBRARIES: Final = ("/dev/urandom", "/dev/random")
_FAILED: Final = pytest.StashKey[bool]()
_LOGGER: Final = logging.getLogger("bccnd")


class Thing(NamedTuple):
    """One of what a test can leave: a process by its pid, a descriptor and what it is open to, a file."""

    kind: str
    name: str
    target: str = ""


class Leftovers:
    """Compares what there is after each test with what there was before it."""

    def __init__(self, isolation: Isolation | None) -> None:
        self._isolation = isolation
        self._reaped = _reaped()
        self._known: set[Thing] = set()

    def pytest_collection_finish(self) -> None:
        self._known = self._look()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._look()
        try:
            return (yield)
        finally:
            self._known |= self._look() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        try:
            yield
        finally:
            description = self._end(item)
        # What has failed has been told, and its traceback may hold descriptors.
        if description and not item.stash.get(_FAILED, False):
            pytest.fail(f"the test leaves behind:\n  {description}", pytrace=False)

    def _end(self, item: pytest.Item) -> str:
        # pytest drops them only behind the hook: what they hold is not left.
        getattr(item, "funcargs", {}).clear()
        return "\n  ".join(self._end_leftovers())

    def _look(self) -> set[Thing]:
        processes = guard.children(os.getpid())
        files: list[Path] = []
        if self._isolation is not None:
            # A process that is not a child can have come only from one that was, and has been reaped.
            if _reaped() != self._reaped:
                processes |= guard.in_own_namespace()
            processes.discard(self._isolation.guard)
            folders = filter(None, (self._isolation.temporary, self._isolation.networks))
            files = [folder / name for folder in folders for name in os.listdir(folder)]
        return {
            *_things(processes),
            *_descriptors(),
            *(Thing("log handler", repr(one), str(id(one))) for one in _LOGGER.handlers),
            *(Thing("file", str(path)) for path in files),
        }

    def _left(self, held: set[Thing]) -> set[Thing]:
        left = held - self._known
        return left - _things(guard.descendants(_pids(self._known))) if _pids(left) else left

    def _end_leftovers(self) -> list[str]:
        """Give what is left some time, and end it; return descriptions of it."""
        held = self._look()
        left = self._left(held)
        if left:
            gc.collect()
            deadline = time.monotonic() + _PATIENCE
            while (left := self._left(held := self._look())) and time.monotonic() < deadline:
                subprocess._cleanup()  # type: ignore[attr-defined]
                time.sleep(0.01)
        descriptions = [_description(one) for one in sorted(left)]
        guard.kill(guard.descendants(_pids(left)))
        for one in left:
            if one.kind == "file":
                _remove(Path(one.name))
        _LOGGER.handlers = [one for one in _LOGGER.handlers if str(id(one)) not in {thing.target for thing in left}]
        roots = {one for one in self._known | left if one.kind == "process" and Path(f"/proc/{one.name}").exists()}
        self._known = roots | {one for one in (self._look() if left else held) if one.kind != "process"}
        self._reaped = _reaped()
        return descriptions


def _reaped() -> int:
    """A number that is another one when a child has been reaped."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _things(pids: Iterable[int]) -> set[Thing]:
    return {Thing("process", str(pid)) for pid in pids}


def _pids(things: Iterable[Thing]) -> set[int]:
    return {int(one.name) for one in things if one.kind == "process"}


def _descriptors() -> Iterator[Thing]:
    """Those of this process, without the standard ones, which pytest changes, and those that libraries keep."""
    for name in os.listdir("/proc/self/fd"):
        if len(name) > 1 or name > "2":
            with suppress(OSError):  # it was that of the listing
                target = os.readlink(f"/proc/self/fd/{name}")
                if target not in _KEPT_BY_LIBRARIES:
                    yield Thing("descriptor", name, target)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _description(thing: Thing) -> str:
    if thing.kind != "process":
        return f"{thing.kind} {thing.name} {thing.target}"
    return f"process {thing.name}: {_command(int(thing.name)) or 'it has ended, and nothing has waited for it'}"


def _remove(path: Path) -> None:
    if path.parent.name == "netns":
        subprocess.run(["ip", "netns", "delete", path.name], check=False, capture_output=True, timeout=_PATIENCE)
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
